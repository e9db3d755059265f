"""Speed of cached snapshots and 304s: this proxy, nginx's cache, and a bare aiohttp handler.

    .venv/bin/python benchmarks/cached_path.py [--seconds 3] [--rounds 3] [--node-modules FOLDER]

The bare handler sends the same bytes as this proxy. "nginx in front" is deploy/nginx/caching.conf,
which revalidates its cache every second. With FOLDER (see renderers.py), the memory caches of
Prerender and Rendertron are measured, too.

Requires wrk, nginx and Chromium. Each server is one process on one core; wrk uses another one if there
is one. All sides get the same load in turns. Compare ratios: absolute figures depend on the machine
and its load. The CPU time per request depends least on other processes.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import measuring
import renderers
import uvloop
from aiohttp import ClientSession, web
from measuring import Side, median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support import nginx_server

BODY_BYTES = 20_000
CONNECTIONS = 32
PAGE = f"<!DOCTYPE html><title>Benchmark</title><p>{'x' * (BODY_BYTES - 100)}</p>"
ETAG = '"benchmark"'
UGLY = "/?_escaped_fragment_="

NGINX_CACHE = "proxy_cache_path {folder}/cache keys_zone=pages:1m;"
NGINX_CACHED = """
location / {{
  proxy_pass {origin};
  proxy_cache pages;
  proxy_cache_valid 200 1h;
}}
"""


@asynccontextmanager
async def in_front(folder: Path, proxy: Side, *pinned: str) -> AsyncIterator[Side]:
    """nginx in front of the proxy, with the configuration in deploy/."""
    port = measuring.free_port()
    config = nginx_server.deployed(
        "caching.conf", folder, port, [int(proxy.url.rpartition(":")[2])]
    )
    async with measuring.nginx(folder, *pinned, http=config) as nginx:
        yield Side(f"http://127.0.0.1:{port}", nginx.pid)


@asynccontextmanager
async def serving(server: web.Server) -> AsyncIterator[str]:
    """Run a server in this process."""
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def page(_: web.BaseRequest) -> web.StreamResponse:
    """The page that all sides have cached."""
    return web.Response(text=PAGE, content_type="text/html", headers={"ETag": ETAG})


async def bare(port: int) -> None:
    """Bare aiohttp, which sends the same bytes as the proxy at ``port``."""
    headers, body = await _same(f"http://127.0.0.1:{port}{UGLY}")

    async def kept(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    async with serving(web.Server(kept, access_log=None)) as url:
        print(f"url={url}", flush=True)
        await asyncio.Event().wait()


async def measure(
    seconds: int, rounds: int, modules: Path | None
) -> dict[str, list[measuring.Measured]]:
    """Measure all sides in turns."""
    cores = sorted(os.sched_getaffinity(0))
    first, last = (("taskset", "-c", str(core)) for core in (cores[0], cores[-1]))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        origin = await stack.enter_async_context(serving(web.Server(page, access_log=None)))
        ours = await stack.enter_async_context(measuring.proxy(origin, *first))
        port = ours.url.rpartition(":")[2]
        command = (*first, sys.executable, __file__, "--bare", port)
        aiohttp = await stack.enter_async_context(measuring.started(*command))
        nginx = await stack.enter_async_context(
            measuring.nginx(
                folder,
                *first,
                http=NGINX_CACHE.format(folder=folder),
                server=NGINX_CACHED.format(origin=origin),
            )
        )
        front = await stack.enter_async_context(in_front(folder, ours, *first))
        sides: dict[str, tuple[Side, str, str]] = {
            "snapshot, ours": (ours, UGLY, ""),
            "snapshot, nginx": (nginx, UGLY, ""),
            "snapshot, aiohttp": (aiohttp, UGLY, ""),
            "snapshot, nginx in front": (front, UGLY, ""),
            "304, ours": (ours, UGLY, f"If-None-Match: {await _etag(ours)}"),
            "304, nginx": (nginx, UGLY, f"If-None-Match: {await _etag(nginx)}"),
        }
        if modules is not None:
            client = await stack.enter_async_context(renderers.crawler())
            for name, start in (
                ("Prerender", renderers.prerender),
                ("Rendertron", renderers.rendertron),
            ):
                server = await stack.enter_async_context(
                    start(client, origin, modules, cached=True, pinned=first)
                )
                sides[f"snapshot, {name}"] = (Side(server.url_of(""), server.pid), "/", "")
                # The first response fills their caches.
                assert await server.html("/")
        return await measuring.in_turns(
            {
                name: partial(measuring.wrk, side, path, seconds, CONNECTIONS, *last, header=header)
                for name, (side, path, header) in sides.items()
            },
            rounds,
        )


async def main(seconds: int, rounds: int, modules: Path | None) -> None:
    """Measure and print medians with ratios."""
    measured = await measure(seconds, rounds, modules)
    print(f"{BODY_BYTES} bytes, {CONNECTIONS} connections, one process each; ratios to nginx")
    print(f"{'':26}{'requests/s':>12}{'ratio':>7}{'CPU/request':>14}{'ratio':>7}")
    for name, values in measured.items():
        yardstick = measured[f"{name.partition(',')[0]}, nginx"]
        rate, cost = (median(values, what) for what in ("requests_per_second", "cpu_us"))
        print(
            f"{name:26}{rate:12,.0f}{rate / median(yardstick, 'requests_per_second'):7.2f}"
            f"{cost:11.1f} us{cost / median(yardstick, 'cpu_us'):7.2f}"
        )


async def _same(url: str) -> tuple[dict[str, str], bytes]:
    """A cached response: the headers that aiohttp does not add itself, and the body."""
    async with ClientSession(headers={"Accept-Encoding": "identity"}) as client:
        for _ in range(2):
            async with client.get(url) as answer:
                body = await answer.read()
        made = ("Date", "Content-Length")
        return {n: v for n, v in answer.headers.items() if n not in made}, body


async def _etag(side: Side) -> str:
    # Requested like wrk does: each coding has its own ETag.
    asked = {"Accept-Encoding": "identity"}
    async with ClientSession(headers=asked) as client:
        async with client.get(side.url + UGLY) as first:
            etag = first.headers["ETag"]
        async with client.get(side.url + UGLY, headers={"If-None-Match": etag}) as second:
            assert (first.status, second.status) == (200, 304)
        return etag


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--node-modules", type=Path)
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(
            bare(options.bare)
            if options.bare
            else main(options.seconds, options.rounds, options.node_modules)
        )
