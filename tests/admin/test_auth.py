"""Access to the admin listener, and attacks of other sites through an operator's browser."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from prerender import app
from prerender.admin import auth
from prerender.admin.client import AdminClient
from prerender.config import load
from prerender.errors import AdminError, ConfigError
from tests.conftest import Overrides, Proxy, proxied, settings_for
from tests.support import raw

TOKEN = "a-token-of-enough-length"
JSON = {"Content-Type": "application/json"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
NO_BROWSER = {"browser": {"path": "/nonexistent/chromium"}}


@pytest.fixture
async def unlocked() -> AsyncIterator[Proxy]:
    admin = {"admin": {"hosts": ["prerender.internal"]}}
    async with proxied(web.Application(), {**NO_BROWSER, **admin}) as proxy:
        yield proxy


@pytest.fixture
async def locked() -> AsyncIterator[Proxy]:
    async with proxied(web.Application(), {**NO_BROWSER, "admin": {"token": TOKEN}}) as proxy:
        yield proxy


async def ask(
    proxy: Proxy, method: str, path: str, headers: Mapping[str, str], body: bytes = b"{}"
) -> tuple[int, str, Mapping[str, str]]:
    data = body if method == "POST" else None
    url = proxy.admin_url + path
    async with proxy.client.request(method, url, headers=headers, data=data) as response:
        return response.status, await response.text(), response.headers


PURGE = b'{"url": "/"}'
FROM_HERE: list[tuple[str, str, dict[str, str], int]] = [
    ("GET", "/", {}, 200),
    ("GET", "/api/v1/summary", {}, 200),
    ("GET", "/api/v1/summary", {"Host": "localhost:8081"}, 200),
    ("GET", "/api/v1/summary", {"Host": "[::1]:8081"}, 200),
    ("GET", "/api/v1/summary", {"Host": "127.0.0.2"}, 200),
    ("GET", "/api/v1/summary", {"Host": "PRERENDER.internal"}, 200),
    ("GET", "/api/v1/summary", {"Host": "evil.example"}, 403),
    ("GET", "/api/v1/summary", {"Host": "localhost.evil.example"}, 403),
    ("GET", "/api/v1/summary", {"Host": "192.168.1.2:8081"}, 403),
    ("GET", "/api/v1/summary", {"Sec-Fetch-Site": "same-origin"}, 200),
    ("GET", "/api/v1/summary", {"Sec-Fetch-Site": "cross-site"}, 403),
    ("GET", "/api/v1/summary", {"Sec-Fetch-Site": "same-site"}, 403),
    ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
    ("GET", "/", {"Host": "evil.example"}, 403),
    ("GET", "/healthz", {"Host": "10.0.0.7:8081"}, 200),
    ("POST", "/api/v1/purge", JSON, 200),
    ("POST", "/api/v1/purge", {"Content-Type": "text/plain"}, 403),
    ("POST", "/api/v1/purge", {"Content-Type": "application/x-www-form-urlencoded"}, 403),
    ("POST", "/api/v1/purge", {**JSON, "Origin": "http://localhost:8081"}, 200),
    ("POST", "/api/v1/purge", {**JSON, "Origin": "https://evil.example"}, 403),
    ("POST", "/api/v1/purge", {**JSON, "Origin": "null"}, 403),
    ("POST", "/api/v1/purge", {**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
    ("POST", "/api/v1/purge",
     {**JSON, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ("DELETE", "/api/v1/session", {"Origin": "https://evil.example"}, 403),
]  # fmt: skip


async def test_without_a_token(unlocked: Proxy) -> None:
    for method, path, headers, expected in FROM_HERE:
        status, text, _ = await ask(unlocked, method, path, headers, PURGE)
        assert status == expected, (method, path, headers, text)


async def test_with_a_token(locked: Proxy) -> None:
    asked: list[tuple[str, str, dict[str, str], int]] = [
        ("GET", "/api/v1/summary", {}, 401),
        ("GET", "/api/v1/summary", {"Authorization": "Bearer wrong"}, 401),
        ("GET", "/api/v1/summary", {"Authorization": f"Basic {TOKEN}"}, 401),
        ("GET", "/api/v1/summary", {"Authorization": "Bearer \udcff"}, 401),
        ("GET", "/api/v1/summary", {"Cookie": f"{auth.COOKIE}=9999999999."}, 401),
        ("GET", "/api/v1/summary", {"Cookie": f"{auth.COOKIE}=9999999999.\udcff"}, 401),
        ("GET", "/api/v1/summary", {"Cookie": f"{auth.COOKIE}=9999999999.{'0' * 64}"}, 401),
        ("GET", "/api/v1/snapshots", {}, 401),
        ("GET", "/api/v1/openapi.json", {}, 401),
        ("GET", "/api/v1/explain?url=/", {}, 401),
        ("POST", "/api/v1/import", JSON, 401),
        ("POST", "/api/v1/purge", JSON, 401),
        ("GET", "/api/v1/summary", BEARER, 200),
        # Browsers send no such field by themselves, so where it comes from does not matter.
        ("GET", "/api/v1/summary", {**BEARER, "Host": "prerender.svc.cluster.local"}, 200),
        ("POST", "/api/v1/purge", BEARER, 200),
        # What has nothing of the site in it.
        ("GET", "/", {}, 200),
        ("GET", "/dashboard/app.js", {}, 200),
        ("GET", "/healthz", {}, 200),
        ("GET", "/metrics", {}, 200),
        ("GET", "/", {"Host": "10.1.2.3:8081"}, 200),
        ("GET", "/", {"Host": "evil.example"}, 403),
    ]
    for method, path, headers, expected in asked:
        status, text, answered = await ask(locked, method, path, headers, PURGE)
        assert status == expected, (method, path, headers, text)
        assert (answered.get("WWW-Authenticate") == "Bearer") == (expected == 401)


async def log_in(proxy: Proxy, token: object, **headers: str) -> tuple[int, str]:
    url = f"{proxy.admin_url}/api/v1/session"
    async with proxy.client.post(url, json={"token": token}, headers=headers) as response:
        return response.status, response.headers.get("Set-Cookie", "")


async def test_a_session(locked: Proxy) -> None:
    for wrong in ("", "x", TOKEN[:-1], f"{TOKEN} ", "\xff"):
        assert await log_in(locked, wrong) == (401, "")
    for invalid in (None, 1, [TOKEN], "\ud800"):
        assert await log_in(locked, invalid) == (400, "")
    status, cookie = await log_in(locked, TOKEN)
    assert status == 200
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert TOKEN not in cookie
    assert "Secure" in (await log_in(locked, TOKEN, **{"X-Forwarded-Proto": "https"}))[1]
    session = {"Cookie": cookie.partition(";")[0]}
    assert (await ask(locked, "GET", "/api/v1/summary", session))[0] == 200
    assert (await ask(locked, "POST", "/api/v1/purge", {**session, **JSON}, PURGE))[0] == 200
    refused: list[dict[str, str]] = [
        {"Content-Type": "text/plain"},
        {**JSON, "Origin": "https://evil.example"},
        {**JSON, "Sec-Fetch-Site": "cross-site"},
        {**JSON, "Host": "evil.example"},
    ]
    for headers in refused:
        status, text, _ = await ask(locked, "POST", "/api/v1/purge", {**session, **headers}, PURGE)
        assert status == 403, (headers, text)
    # One that has been tampered with, and one whose time is over.
    until, _, signature = cookie.partition(";")[0].partition("=")[2].partition(".")
    later = {"Cookie": f"{auth.COOKIE}={int(until) + 1}.{signature}"}
    assert (await ask(locked, "GET", "/api/v1/summary", later))[0] == 401
    _, _, answered = await ask(locked, "DELETE", "/api/v1/session", session)
    assert f'{auth.COOKIE}=""' in answered["Set-Cookie"]


def test_sessions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    guarding = auth.AdminAuth(("another-token-of-length", TOKEN), ())

    assert guarding.session("wrong") == guarding.session("") == ""
    cookie = {"Cookie": f"{auth.COOKIE}={guarding.session(TOKEN)}"}
    request = make_mocked_request("GET", "/", headers=cookie)
    assert guarding.knows(request)
    guarding.renew_tokens([TOKEN])
    assert guarding.knows(request)
    assert not auth.AdminAuth(["another-token-of-length"], ()).knows(request)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + auth.SESSION_SECONDS + 1)
    assert not guarding.knows(request)


async def test_a_reload_never_removes_the_last_token(tmp_path: Path) -> None:
    """The settings allow an address of this machine alone without a token, but the listener is still
    bound to the old one."""
    file = tmp_path / "tokens"
    file.write_text("another-token-of-length\n")
    everywhere = {"host": "0.0.0.0", "token": TOKEN}
    in_effect = settings_for("http://127.0.0.1:9", {**NO_BROWSER, "admin": everywhere})
    async with proxied(web.Application(), {**NO_BROWSER, "admin": everywhere}) as proxy:

        async def accepted() -> list[str]:
            tokens = (TOKEN, "another-token-of-length", "")
            headers = [{"Authorization": f"Bearer {token}"} for token in tokens]
            answers = [await ask(proxy, "GET", "/api/v1/summary", one) for one in headers]
            return [
                token for token, answer in zip(tokens, answers, strict=True) if answer[0] == 200
            ]

        def reloaded(admin: dict[str, str]) -> tuple[str, str]:
            nonlocal in_effect
            new = settings_for("http://127.0.0.1:9", {**NO_BROWSER, "admin": admin})
            with capture_logs() as logs:
                in_effect = app.reload(proxy.running, in_effect, new)
            return logs[0]["applied"], logs[0]["needs_restart"]

        assert await accepted() == [TOKEN]
        for admin in ({"host": "127.0.0.1"}, {"host": "127.0.0.1"}):
            assert reloaded(admin) == ("nothing", "[admin] host, [admin] token")
            assert await accepted() == [TOKEN]
        assert reloaded({"host": "0.0.0.0", "token_file": str(file)}) == (
            "[admin] token_file, [admin] token", "nothing"
        )  # fmt: skip
        assert await accepted() == ["another-token-of-length"]
        assert reloaded({"host": "127.0.0.1"}) == ("nothing", "[admin] host, [admin] token_file")
        assert await accepted() == ["another-token-of-length"]
        file.unlink()
        with pytest.raises(ConfigError):
            reloaded({"host": "0.0.0.0", "token": TOKEN, "token_file": f"{file}2"})
        assert await accepted() == ["another-token-of-length"]
        assert reloaded(everywhere) == ("[admin] token_file, [admin] token", "nothing")
        assert await accepted() == [TOKEN]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "www.example.com"])
def test_another_address_needs_a_token(host: str) -> None:
    origin = {"origin": {"url": "http://127.0.0.1:9"}}
    with pytest.raises(ConfigError) as error:
        load(None, {}, {**origin, "admin": {"host": host}})
    (problem,) = error.value.problems
    assert problem == (
        f"[admin] token: required because [admin] host is {host}: set at least 16 characters, "
        '"auto", or token_file'
    )
    with pytest.raises(ConfigError, match="at least 16 ASCII characters"):
        load(None, {}, {**origin, "admin": {"host": host, "token": "short"}})
    assert load(None, {}, {**origin, "admin": {"host": host, "token": TOKEN}}).admin.host == host


@pytest.mark.parametrize("tokens", [[""], [TOKEN, ""], f'["{TOKEN}", ""]'])
def test_no_token_of_a_list_is_empty(tokens: object) -> None:
    """As in a template of a rotation without the old token."""
    overrides: Overrides = {"origin": {"url": "http://127.0.0.1:9"}, "admin": {"token": tokens}}
    with pytest.raises(ConfigError, match=r"^\[admin\] token .*: a token in the list is empty"):
        load(None, {}, overrides)


def test_a_session_of_an_empty_token_is_not_accepted() -> None:
    """Everybody knows its key."""
    empty = auth.AdminAuth([""], ())
    forged = f"9999999999.{auth._signed('', '9999999999')}"
    request = make_mocked_request("GET", "/", headers={"Cookie": f"{auth.COOKIE}={forged}"})
    assert not empty.knows(request)
    assert not auth.AdminAuth([TOKEN, ""], ()).knows(request)


def test_the_token_of_commands(tmp_path: Path) -> None:
    """The image sets "auto"."""
    file = tmp_path / "tokens"
    file.write_text("the-first-token-of-the-file\nand-another-one-of-it\n")

    def token(**admin: str) -> str:
        return AdminClient.of(settings_for("http://127.0.0.1:9", {"admin": admin}).admin).token

    assert token() == ""
    assert token(token=f"{TOKEN},another-token-of-length") == TOKEN
    assert token(token_file=str(file)) == "the-first-token-of-the-file"
    assert token(token="auto", token_file=str(file)) == "the-first-token-of-the-file"
    with pytest.raises(AdminError, match="Set PRERENDER_ADMIN_TOKEN to admin_token"):
        token(token="auto")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    settings = load(None, {}, {"origin": {"url": "http://127.0.0.1:9"}, "admin": {"host": host}})
    assert settings.admin.token == ()


async def test_the_public_listener_knows_nothing_of_it(unlocked: Proxy) -> None:
    for path in ("/api/v1/summary", "/dashboard/app.js", "/api/v1/openapi.json"):
        assert (await unlocked.get(path)).status == 404


async def test_the_files_of_the_dashboard(unlocked: Proxy) -> None:
    for path in ("/", "/dashboard/app.js", "/dashboard/style.css", "/dashboard/icon.svg"):
        _, text, headers = await ask(unlocked, "GET", path, {})
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "http://" not in text.replace("http://www.w3.org/", "")
        assert "innerHTML" not in text
    for path in ("/dashboard/nothing.js", "/dashboard/..%2Fauth.py", "/dashboard/__init__.py"):
        assert (await ask(unlocked, "GET", path, {}))[0] == 404


async def test_two_proxies_do_not_share_a_port_by_mistake() -> None:
    """If the admin listener's port is in use, the error names its setting."""
    async with app.serving(settings_for("http://127.0.0.1:9", NO_BROWSER)) as running:
        taken: Overrides = {**NO_BROWSER, "admin": {"port": running.admin_port}}
        with pytest.raises(ConfigError, match=r"\[admin\] host, port"):
            async with asyncio.timeout(20), app.serving(settings_for("http://127.0.0.1:9", taken)):
                pass


async def test_absolute_urls(locked: Proxy) -> None:
    """aiohttp cannot decode the name xn--a (IDNA)."""
    for url in (b"http://a/healthz", b"https://a:1/healthz", b"http://xn--a/healthz"):
        request = b"GET " + url + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answer = await raw.ask(locked.running.admin_port, request)
        assert answer.startswith(b"HTTP/1.1 200"), answer


async def test_malformed_requests_leave_no_traceback_in_the_log(
    locked: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    for request in (b"garbage\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"):
        answer = await raw.ask(locked.running.admin_port, request)
        assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    assert not any(record.exc_info for record in caplog.records)
