"""Speed of forwarding: this proxy, Node's http-proxy, nginx and bare aiohttp, in one run.

    npm install --prefix FOLDER http-proxy
    .venv/bin/python benchmarks/forwarding.py [--node-modules FOLDER/node_modules]

Requires wrk, nginx and Chromium (so that this proxy runs as in production). The origin is an nginx
with a file of 20 kB. Each proxy is one process on one core; the origin and wrk share another one if
there is one. All sides get the same load in turns. Compare ratios: absolute figures depend on the
machine and its load. The CPU time per request depends least on other processes.
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
import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from measuring import Side, median

BODY_BYTES = 20_000
BUSY_CONNECTIONS = 32

NODE = """
const httpProxy = require("http-proxy");
const http = require("http");
const agent = new http.Agent({ keepAlive: true });
const proxy = httpProxy.createProxyServer({ target: process.argv[2], agent, xfwd: true });
const server = http.createServer((request, response) => proxy.web(request, response));
server.listen(0, "127.0.0.1", () => console.log(`url=http://127.0.0.1:${server.address().port}`));
"""

NGINX_UPSTREAM = (
    "upstream origin {{ server {origin}; keepalive 64; keepalive_requests 100000000; }}"
)
NGINX_PROXY = """
location / {
  proxy_pass http://origin;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_set_header Host $host;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
}
"""


async def bare(origin: str) -> None:
    """The simplest proxy: aiohttp's server and client, streaming."""
    connector = TCPConnector(limit=0)
    async with ClientSession(
        connector=connector, auto_decompress=False, timeout=ClientTimeout(total=None)
    ) as session:

        async def forward(request: web.BaseRequest) -> web.StreamResponse:
            url = origin + request.path_qs
            async with session.request(request.method, url, headers=request.headers) as answer:
                response = web.StreamResponse(status=answer.status, headers=answer.headers)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response

        runner = web.ServerRunner(web.Server(forward, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"url=http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()


@asynccontextmanager
async def node(folder: Path, modules: Path, origin: str, *pinned: str) -> AsyncIterator[Side]:
    """http-proxy in one process of Node."""
    script = folder / "proxy.js"
    script.write_text(NODE)
    async with measuring.started(
        *pinned, "node", str(script), origin, NODE_PATH=str(modules), NODE_ENV="production"
    ) as side:
        yield side


Results = dict[str, list[measuring.Measured]]


async def measure(seconds: int, rounds: int, modules: Path | None) -> tuple[Results, Results]:
    """Measure all sides in turns: under load, and with one client."""
    cores = sorted(os.sched_getaffinity(0))
    first, last = (("taskset", "-c", str(core)) for core in (cores[0], cores[-1]))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        (folder / "page").write_bytes(b"x" * BODY_BYTES)
        site = await stack.enter_async_context(measuring.nginx(folder, *last))
        origin = site.url
        command = (*first, sys.executable, __file__, "--bare", origin)
        running = {
            "origin alone": site,
            "ours": await stack.enter_async_context(measuring.proxy(origin, *first)),
            "bare aiohttp": await stack.enter_async_context(measuring.started(*command)),
            "nginx": await stack.enter_async_context(
                measuring.nginx(
                    folder,
                    *first,
                    http=NGINX_UPSTREAM.format(origin=origin.removeprefix("http://")),
                    server=NGINX_PROXY,
                )
            ),
        }
        if modules is not None:
            running["http-proxy"] = await stack.enter_async_context(
                node(folder, modules, origin, *first)
            )

        def sides(connections: int) -> dict[str, measuring.Measure]:
            return {
                name: partial(measuring.wrk, side, "/page", seconds, connections, *last)
                for name, side in running.items()
            }

        busy = await measuring.in_turns(sides(BUSY_CONNECTIONS), rounds)
        return busy, await measuring.in_turns(sides(1), rounds)


async def main(seconds: int, rounds: int, modules: Path | None) -> None:
    """Measure and print medians and ratios."""
    busy, calm = await measure(seconds, rounds, modules)
    yardstick = "http-proxy" if modules is not None else "bare aiohttp"
    print(f"{BODY_BYTES} bytes, one process each; ratios to {yardstick}")
    print(
        f"{'':14}{'requests/s':>12}{'ratio':>7}{'CPU/request':>14}{'ratio':>7}{'p50, one client':>18}"
    )
    rate = median(busy[yardstick], "requests_per_second")
    cost = median(busy[yardstick], "cpu_us")
    for name in busy:
        ours, used = (median(busy[name], what) for what in ("requests_per_second", "cpu_us"))
        print(
            f"{name:14}{ours:12,.0f}{ours / rate:7.2f}{used:11.1f} us{used / cost:7.2f}"
            f"{median(calm[name], 'p50_ms'):15.2f} ms"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node-modules", type=Path)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        if options.bare:
            loop.run(bare(options.bare))
        else:
            loop.run(main(options.seconds, options.rounds, options.node_modules))
