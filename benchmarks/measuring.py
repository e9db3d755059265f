"""Helpers of the speed benchmarks: servers as processes, nginx, and wrk."""

import asyncio
import getpass
import os
import re
import socket
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from aiohttp import web

NGINX = """
{user}
daemon off;
worker_processes 1;
pid {folder}/{port}.pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {folder}/client_body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {http}
  server {{
    listen 127.0.0.1:{port};
    root {folder};
    {server}
  }}
}}
"""


CPUS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Side:
    """A server under load, with its process id."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """CPU time so far, including workers."""
        process = psutil.Process(self.pid)
        family = [process, *process.children()]
        times = [one.cpu_times() for one in family if one.name() == process.name()]
        return sum(time.user + time.system for time in times)


@dataclass(frozen=True)
class Measured:
    """A run of wrk. The CPU time per request hardly depends on other processes."""

    requests_per_second: float
    p50_ms: float
    cpu_us: float


@asynccontextmanager
async def started(*command: str, **environment: str) -> AsyncIterator[Side]:
    """Start a server in its own process, and read its URL from its output."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        while line := (await process.stdout.readline()).decode():
            if match := re.search(r"\burl=(http://[^\s\x1b]+)|\"url\": \"(http://[^\"]+)", line):
                break
        else:
            raise RuntimeError(f"{command[0]} did not start")
        # Read its further output, so that it never blocks on a full pipe.
        rest = asyncio.create_task(process.stdout.read())
        yield Side(match[1] or match[2], process.pid)
        rest.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def proxy(origin: str, *pinned: str, **settings: str) -> AsyncIterator[Side]:
    """This proxy. ``pinned``: a command that starts it; ``settings``: its environment."""
    command = (*pinned, sys.executable, "-m", "prerender", "serve")
    own = {"ORIGIN_URL": origin, "SERVER_PORT": "0", "ADMIN_PORT": "0"}
    own["LOG_ACCESS"] = "none"  # like nginx
    environment = {f"PRERENDER_{name}": value for name, value in own.items()} | settings
    async with started(*command, **environment) as side:
        yield side


@asynccontextmanager
async def nginx(
    folder: Path, *pinned: str, http: str = "", server: str = ""
) -> AsyncIterator[Side]:
    """nginx with one worker, which serves a folder, or with ``server`` as configuration."""
    port = free_port()
    user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
    config = folder / f"{port}.conf"
    config.write_text(NGINX.format(user=user, folder=folder, port=port, http=http, server=server))
    process = await asyncio.create_subprocess_exec(*pinned, "nginx", "-c", str(config))
    try:
        await listening(port)
        yield Side(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def in_front_of(folder: Path, sides: Sequence[Side]) -> AsyncIterator[Side]:
    """nginx that balances requests over proxies, as in deploy/nginx."""
    servers = " ".join(f"server {side.url.removeprefix('http://')} max_fails=0;" for side in sides)
    async with nginx(
        folder,
        http=f"upstream proxies {{ {servers} keepalive 64; keepalive_requests 100000000; }}",
        server="""location / {
            proxy_pass http://proxies;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host www.example.com;
            proxy_read_timeout 90s;
        }""",
    ) as front:
        yield front


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[str]:
    """Run a Redis. Yields its URL."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *("redis-server", "--port", str(port), "--save", "", "--dir", str(folder)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await listening(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def serving(runner: "web.BaseRunner[Any]") -> AsyncIterator[str]:
    """Serve on a free port, in this process. Yields the URL."""
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def application_runner(application: web.Application) -> web.AppRunner:
    """For ``serving``: without an access log, and ending at once."""
    return web.AppRunner(application, access_log=None, shutdown_timeout=0.1)


def free_port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


async def listening(port: int) -> None:
    """Wait until a server listens on the port."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def wrk(
    side: Side,
    path: str,
    seconds: int,
    connections: int,
    *pinned: str,
    header: str = "",
    script: str = "",
) -> Measured:
    """Run wrk. Fails if any response is an error. ``script``: a Lua file that generates requests."""
    command = [*pinned, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    if header:
        command += ["-H", header]
    if script:
        command += ["-s", script]
    before = side.cpu_seconds()
    process = await asyncio.create_subprocess_exec(
        *command, side.url + path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output = (await process.communicate())[0].decode()
    used = side.cpu_seconds() - before
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    requests = re.search(r"(\d+) requests in", output)
    if (
        not rate
        or not requests
        or "Socket errors" in output
        or ("Non-2xx" in output and not header)
    ):
        raise RuntimeError(output)
    return Measured(float(rate[1]), _percentile(output, 50), used * 1e6 / int(requests[1]))


def _percentile(output: str, wanted: int) -> float:
    match = re.search(rf"^\s+{wanted}%\s+([\d.]+)(us|ms|s)$", output, re.MULTILINE)
    assert match is not None
    return float(match[1]) * {"us": 0.001, "ms": 1, "s": 1000}[match[2]]


Measure = Callable[[], Awaitable[Measured]]


async def in_turns(sides: Mapping[str, Measure], rounds: int) -> dict[str, list[Measured]]:
    """Measure all sides in turns, so that a noisy machine affects all of them."""
    measured: dict[str, list[Measured]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            measured[name].append(await measure())
    return measured


def median(values: Sequence[Measured], what: str) -> float:
    """The median of a figure over all rounds."""
    return statistics.median(getattr(value, what) for value in values)
