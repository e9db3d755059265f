"""What visits and alerts cost: CPU time per request with and without them.

    .venv/bin/python benchmarks/visits.py [--seconds 2] [--rounds 15]

Two proxies, one with [visits] days = 0, one with a file of visits and [webhooks] url, get the same load
in turns: hits of Googlebot, and visitors that are forwarded. Compare ratios: absolute figures depend on
the machine and its load. Requires wrk and Chromium.
"""

import argparse
import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import measuring
from aiohttp import ClientSession, web

CONNECTIONS = 8
PAGE = f"<!DOCTYPE html><title>Benchmark</title><p>{'text ' * 400}</p>"
GOOGLEBOT = "User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
BROWSER = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/142.0.0.0 Safari/537.36"
)
LOADS = {"hits of Googlebot": GOOGLEBOT, "forwarded": BROWSER}


async def page(_: web.BaseRequest) -> web.StreamResponse:
    """The page of the origin, which also takes alerts."""
    return web.Response(text=PAGE, content_type="text/html")


async def main(seconds: int, rounds: int) -> None:
    """Measure and print the ratios of all rounds."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runner = web.ServerRunner(web.Server(page, access_log=None))
        origin = await stack.enter_async_context(measuring.serving(runner))
        common = {"PRERENDER_TRIGGERS_PRESET": "crawlers", "PRERENDER_BROWSER_PAGES": "1"}
        without = common | {
            "PRERENDER_CACHE_URL": f"file://{folder / 'without'}",
            "PRERENDER_VISITS_DAYS": "0",
        }
        with_all = common | {
            "PRERENDER_CACHE_URL": f"file://{folder / 'with'}",
            "PRERENDER_WEBHOOKS_URL": f"{origin}/hook",
            "PRERENDER_WEBHOOKS_SECRET": f"whsec_{'A' * 32}",
        }
        sides = {
            name: await stack.enter_async_context(measuring.proxy(origin, **settings))
            for name, settings in (("without", without), ("with", with_all))
        }
        async with ClientSession() as session:
            for side in sides.values():
                name, _, value = GOOGLEBOT.partition(": ")
                async with session.get(f"{side.url}/page", headers={name: value}) as response:
                    assert response.status == 200, await response.text()
        for load, header in LOADS.items():
            measures = {
                name: partial(measuring.wrk, side, "/page", seconds, CONNECTIONS, header=header)
                for name, side in sides.items()
            }
            # In pairs that begin with each side in turn, so that none is always the first.
            results: dict[str, list[measuring.Measured]] = {name: [] for name in sides}
            for number in range(rounds):
                for name in sorted(sides, reverse=bool(number % 2)):
                    results[name].append(await measures[name]())
            pairs = zip(results["with"], results["without"], strict=True)
            ratio = statistics.median(one.cpu_us / other.cpu_us for one, other in pairs)
            used = {name: measuring.median(some, "cpu_us") for name, some in results.items()}
            print(
                f"{load}: {used['without']:.1f} us of CPU time without visits and alerts, "
                f"{used['with']:.1f} us with them; median of the ratios {ratio:.3f}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    asyncio.run(main(options.seconds, options.rounds))
