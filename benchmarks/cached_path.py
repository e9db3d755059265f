"""How fast are cached snapshots? Ours against a bare aiohttp answer of the same size, in one run.

    .venv/bin/python benchmarks/cached_path.py [--seconds 3] [--rounds 3]

Needs wrk and Chromium. Both sides get the same load in turns, so that a noisy machine hits both; the
ratio is the figure to compare, the requests per second are of this machine at this moment.
"""

import argparse
import asyncio
import os
import re
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import uvloop
from aiohttp import ClientSession, web

BODY_BYTES = 20_000
CONNECTIONS = 32
PAGE = f"<!DOCTYPE html><title>Benchmark</title><p>{'x' * (BODY_BYTES - 100)}</p>"


@asynccontextmanager
async def serving(server: web.Server) -> AsyncIterator[str]:
    """A server in this process."""
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@asynccontextmanager
async def started(*command: str, **environment: str) -> AsyncIterator[str]:
    """A server in a process of its own; its URL is read from what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        while line := (await process.stdout.readline()).decode():
            if match := re.search(r"\burl=(http://\S+)|\"url\": \"(http://[^\"]+)", line):
                yield match[1] or match[2]
                break
    finally:
        process.terminate()
        await process.wait()


async def bare() -> None:
    """The other side: what aiohttp can do with nothing around it."""

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=PAGE.encode(), content_type="text/html")

    async with serving(web.Server(answer, access_log=None)) as url:
        print(f"url={url}", flush=True)
        await asyncio.Event().wait()


async def wrk(url: str, seconds: int, header: str = "") -> float:
    """Requests per second; fails if any answer was an error."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s"]
    if header:
        command += ["-H", header]
    process = await asyncio.create_subprocess_exec(
        *command, url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output = (await process.communicate())[0].decode()
    if "Non-2xx" in output and not header:
        raise RuntimeError(output)
    match = re.search(r"Requests/sec:\s+([\d.]+)", output)
    if match is None:
        raise RuntimeError(output)
    return float(match[1])


async def main(seconds: int, rounds: int) -> None:
    """Measure both sides in turns and print the medians with their ratios."""

    async def page(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=PAGE, content_type="text/html")

    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(serving(web.Server(page, access_log=None)))
        proxy = await stack.enter_async_context(
            started(
                "-m", "prerender", "serve",
                PRERENDER_ORIGIN_URL=origin, PRERENDER_SERVER_PORT="0", PRERENDER_ADMIN_PORT="0",
            )
        )  # fmt: skip
        other = await stack.enter_async_context(started(__file__, "--bare"))
        ugly = f"{proxy}/?_escaped_fragment_="
        async with ClientSession() as client, client.get(ugly) as first:
            assert first.status == 200
            size = len(await first.read())
            etag = first.headers["ETag"]
        sides = {
            "bare aiohttp": (other, ""),
            "cached snapshot": (ugly, ""),
            "304": (ugly, f"If-None-Match: {etag}"),
        }
        measured: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, (url, header) in sides.items():
                measured[name].append(await wrk(url, seconds, header))
        print(f"{size} bytes, {CONNECTIONS} connections, one process each; requests per second")
        floor = statistics.median(measured["bare aiohttp"])
        for name, values in measured.items():
            median = statistics.median(values)
            print(f"{name:16} {median:9,.0f}   x {median / floor:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(bare() if options.bare else main(options.seconds, options.rounds))
