"""Crawls while one of the browser's processes is killed every second, by a random signal.

    .venv/bin/python benchmarks/chaos.py [--seconds 60] [--pages 4] [--clients 4] [--seed 1]

Every response must be a complete snapshot or a 503 with Retry-After, at least 95 % must be snapshots,
and resources must be the same before and afterwards. Exits with 1 otherwise.
"""

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from aiohttp import ClientSession, DummyCookieJar, web
from measuring import application_runner, serving

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from prerender import app
from prerender.config.settings import LogSettings
from prerender.telemetry import logs
from tests.conftest import Proxy, settings_for
from tests.support import chaos
from tests.support.pools import Shop


async def main(options: argparse.Namespace) -> bool:
    """Run, and print the outcome. Returns whether it is as required."""
    logs.configure(LogSettings(level=options.log))
    async with AsyncExitStack() as stack:
        shop = Shop()
        application = web.Application()
        application.add_routes([web.get("/", shop.page), web.get("/text", shop.text)])
        url = await stack.enter_async_context(serving(application_runner(application)))
        settings = settings_for(
            url,
            {"browser": {"pages": options.pages}, "site": {"url": "https://www.example.com"}},
        )
        client = await stack.enter_async_context(ClientSession(cookie_jar=DummyCookieJar()))
        running = await stack.enter_async_context(app.serving(settings))
        addresses = (
            f"http://127.0.0.1:{port}" for port in (running.public_port, running.admin_port)
        )
        outcome = await chaos.run(
            Proxy(*addresses, running, client),
            pages=options.pages,
            clients=options.clients,
            seconds=options.seconds,
            seed=options.seed,
        )
    return report(outcome, options.seconds)


def report(outcome: chaos.Outcome, seconds: float) -> bool:
    """Print an outcome. Returns whether it is as required."""
    times = sorted(outcome.snapshots) or [0.0]
    print(f"{seconds:g} s, killed: {dict(outcome.killed)}; {outcome.browsers} browsers started")
    print(
        f"{len(outcome.snapshots)} snapshots ({outcome.share:.1%}), {len(outcome.refused)} times 503, "
        f"{len(outcome.wrong)} wrong or hanging {outcome.wrong[:3]}"
    )
    middle, late = times[len(times) // 2], times[len(times) * 99 // 100]
    print(
        f"a snapshot took {middle:.2f} s (median), {late:.2f} s (p99), {times[-1]:.2f} s (longest)"
    )
    print(f"before: {outcome.before}\nchanged: {outcome.changes or 'nothing'}")
    return not outcome.changes and not outcome.wrong and outcome.share >= 0.95


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pages", type=int, default=4)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", default="error", help="level of the log (error)")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        sys.exit(not loop.run(main(parser.parse_args())))
