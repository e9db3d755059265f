"""nginx in the foreground, with all its files in one folder."""

import asyncio
import getpass
import itertools
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support import raw
from tests.support.commands import ROOT

_START_SECONDS = 10

_MAIN = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr {errors};
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/client_body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
{http}
}}
"""


def configuration(folder: Path, http: str, errors: str = "error") -> str:
    """A complete configuration around the contents of its ``http`` block. ``errors``: the log level."""
    user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
    return _MAIN.format(user=user, folder=folder, errors=errors, http=http)


def deployed(
    name: str, folder: Path, port: int, proxy_ports: Sequence[int], origin_port: int = 0
) -> str:
    """A configuration of ``deploy/nginx``, but on loopback ports and with its cache in a folder. A port
    of a proxy is used again if the configuration names more proxies than there are ports.
    """
    proxies = itertools.cycle(proxy_ports)
    config = (ROOT / "deploy/nginx" / name).read_text(encoding="utf-8")
    for pattern, address in (
        (r"\blisten 80;", lambda _: f"listen 127.0.0.1:{port};"),
        (r"\bserver prerender(-\d)?:8080\b", lambda _: f"server 127.0.0.1:{next(proxies)}"),
        (r"\bserver origin:3000\b", lambda _: f"server 127.0.0.1:{origin_port}"),
        ("/var/cache/", lambda _: f"{folder}/"),
    ):
        config, count = re.subn(pattern, address, config)
        assert count or "origin" in pattern or "cache" in pattern, pattern
    assert not re.search(r":8080|:3000|/var/", config)
    return config


def program() -> str:
    """The path of nginx, which may be outside the PATH of ordinary users."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert found, "nginx is not installed: run make test"
    return found


@asynccontextmanager
async def running(
    folder: Path, http: str, listens: int | Path, errors: str = "error"
) -> AsyncIterator[None]:
    """nginx with this ``http`` block. Waits until it listens on ``listens``, a port or a socket
    file.
    """
    config = folder / "nginx.conf"
    config.write_text(configuration(folder, http, errors), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        program(), "-p", str(folder), "-c", str(config), "-e", "stderr"
    )
    try:
        async with asyncio.timeout(_START_SECONDS):
            # A socket's file is there before anybody listens.
            while not await raw.accepts(listens):
                assert process.returncode is None, "nginx does not take the configuration"
                await asyncio.sleep(0.01)
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGQUIT)
        await process.wait()
