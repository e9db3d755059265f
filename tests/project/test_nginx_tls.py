"""deploy/nginx/tls.conf, with a certificate of our own."""

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector

from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages
from tests.project.test_deploy import (
    DEPLOY,
    PAGE,
    SAID_BY_PROXIES,
    limited,
    text_of,
    until_nginx_says,
)
from tests.support import nginx_server, raw
from tests.support.commands import in_

FILE = DEPLOY / "nginx/tls.conf"
CERTIFICATE = "/etc/letsencrypt/live/www.example.com"
NEW_KEY = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout privkey.pem -out fullchain.pem"
NAMES = "DNS:www.example.com,IP:127.0.0.1"
GOOGLEBOT = {"User-Agent": "Mozilla/5.0 (compatible; Googlebot/2.1)"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a certificate."""
    folder = tmp_path_factory.mktemp("certificate")
    names = ("-subj", "/CN=www.example.com", "-addext", f"subjectAltName={NAMES}")
    in_(folder, *NEW_KEY.split(), *names)
    return folder


def warnings(config: Path) -> bytes:
    command = (nginx_server.program(), "-t", "-q", "-c", config, "-e", "stderr")
    return subprocess.run(command, capture_output=True, check=True).stderr


@asynccontextmanager
async def started(
    folder: Path, certificate: Path, proxy: Proxy, cdn: str, config: str = ""
) -> AsyncIterator[tuple[int, int]]:
    """nginx with the file, or with ``config``. Yields its ports for http and https. ``cdn``:
    whose addresses it trusts.
    """
    http, https = raw.free_ports(2)
    # Not every machine has IPv6.
    text, count = re.subn(r"^ +listen \[::\].*\n", "", config or text_of(FILE), flags=re.MULTILINE)
    assert count == 3
    # Debian has this folder, with nothing of nginx in it.
    (folder / "cache").mkdir()
    for old, new in (
        ("listen 80;", f"listen 127.0.0.1:{http};"),
        ("listen 443 ", f"listen 127.0.0.1:{https} "),
        ("server 127.0.0.1:8080;", f"server 127.0.0.1:{proxy.running.public_port};"),
        (CERTIFICATE, str(certificate)),
        ("/var/cache/nginx-", f"{folder}/cache/nginx-"),
        ("192.0.2.0/24", cdn),
    ):
        assert old in text
        text = text.replace(old, new)
    # As in Debian's nginx.conf.
    text = f"ssl_protocols TLSv1.2;\n{text}"
    async with nginx_server.running(folder, text, https):
        assert warnings(folder / "nginx.conf") == b""
        yield http, https


@asynccontextmanager
async def client(certificate: Path) -> AsyncIterator[ClientSession]:
    context = ssl.create_default_context(cafile=str(certificate / "fullchain.pem"))
    connector = TCPConnector(ssl=context)
    async with ClientSession(connector=connector, headers={"Host": "www.example.com"}) as session:
        yield session


@pytest.fixture
async def site(start_origin: StartOrigin) -> Site:
    return await pages(start_origin, {"/": PAGE})


@pytest.fixture
async def proxy(site: Site, start_proxy: StartProxy) -> Proxy:
    overrides = {
        "site": {"url": "https://www.example.com"},
        "triggers": {"preset": "crawlers"},
    }
    return await start_proxy(site.url, overrides)


async def test_visitors_and_crawlers_by_https(
    site: Site, proxy: Proxy, certificate: Path, tmp_path: Path
) -> None:
    async with (
        started(tmp_path, certificate, proxy, "127.0.0.0/8") as (http, https),
        client(certificate) as session,
    ):
        url = f"https://127.0.0.1:{https}/"
        through_cdn = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http"}
        async with session.get(url, headers=through_cdn) as answer:
            assert "plain+" not in await answer.text()
        asked = site.requests[-1].headers
        assert asked["X-Forwarded-Proto"] == "https"
        assert asked["X-Forwarded-For"] == "203.0.113.9, 127.0.0.1"
        async with session.get(url, headers=GOOGLEBOT) as answer:
            assert "plain+" in await answer.text()
        for location in ("https://example.com", "http://www.example.com", "http://example.com"):
            scheme, _, name = location.partition("://")
            port = https if scheme == "https" else http
            asked_for = f"{scheme}://127.0.0.1:{port}/a%2Fb?c=%26"
            redirect = session.get(asked_for, headers={"Host": name}, allow_redirects=False)
            async with redirect as answer:
                moved = (answer.status, answer.headers["Location"])
            assert moved == (301, "https://www.example.com/a%2Fb?c=%26")
        ugly = f"https://127.0.0.1:{https}/?_escaped_fragment_="
        async with asyncio.timeout(raw.SECONDS):
            for wanted in ("MISS", "HIT"):
                await until_nginx_says(wanted, session, ugly)


async def test_it_speaks_http_2(proxy: Proxy, certificate: Path, tmp_path: Path) -> None:
    async with started(tmp_path, certificate, proxy, "192.0.2.0/24") as (_, https):
        url = f"https://www.example.com:{https}/"
        resolved = f"www.example.com:{https}:127.0.0.1"
        known = ("--cacert", certificate / "fullchain.pem", "--resolve", resolved)
        shown = ("--silent", "--output", "/dev/null", "--write-out", "%{http_version}")
        assert await asyncio.to_thread(in_, tmp_path, "curl", *known, *shown, url) == "2"


async def test_nobody_else_says_who_the_client_is(
    site: Site, proxy: Proxy, certificate: Path, tmp_path: Path
) -> None:
    async with (
        started(tmp_path, certificate, proxy, "192.0.2.0/24") as (_, https),
        client(certificate) as session,
    ):
        url = f"https://127.0.0.1:{https}/"
        async with session.get(url, headers=dict.fromkeys(SAID_BY_PROXIES, "evil")) as answer:
            assert answer.status == 200
    asked = site.requests[-1].headers
    assert not any("evil" in value for value in asked.values())
    assert asked["X-Real-IP"] == "127.0.0.1"
    assert asked["X-Forwarded-For"] == "127.0.0.1, 127.0.0.1"


async def test_the_documented_limit_counts_ugly_urls_and_crawlers(
    proxy: Proxy, certificate: Path, tmp_path: Path
) -> None:
    config = limited(text_of(FILE))
    async with (
        started(tmp_path, certificate, proxy, "127.0.0.0/8", config) as (_, https),
        client(certificate) as session,
    ):

        async def statuses(path: str, address: str, agent: str = "Mozilla/5.0") -> list[int]:
            """The statuses of two requests."""
            said = {"X-Forwarded-For": address, "User-Agent": agent}
            url = f"https://127.0.0.1:{https}{path}"
            found = []
            for _ in range(2):
                async with session.get(url, headers=said) as answer:
                    found.append(answer.status)
            return found

        assert await statuses("/?_escaped_fragment_=", "203.0.113.1") == [200, 429]
        assert await statuses("/", "203.0.113.2", GOOGLEBOT["User-Agent"]) == [200, 429]
        assert await statuses("/", "203.0.113.1") == [200, 200]
