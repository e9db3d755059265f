"""The purge APIs of CDNs.

Fastly: https://www.fastly.com/documentation/reference/api/purging/
Cloudflare: https://developers.cloudflare.com/api/resources/cache/methods/purge/
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from prerender.config.settings import CdnSettings
from prerender.config.watched_file import WatchedFile
from prerender.config.watched_file import reason_of as reason_of_file
from prerender.errors import ConfigError
from prerender.extensions.cdn.tags import TagHeader
from prerender.gateway.connection_errors import reason_of
from prerender.http.retry_after import seconds_of

_TIMEOUT_SECONDS = 15.0
_MOST_BYTES = 1024**2
_LONGEST_REASON = 200
_LOOK_SECONDS = 1.0
# The request itself is wrong: it would be refused again.
_REFUSED = (400, 413, 414, 422)
# Of Cloudflare, with status 400: the header with the token, or the ID of the zone, is wrong.
_OF_SETTINGS = (6003, 7003)


class CdnError(Exception):
    """A request of the API failed. ``after_seconds``: when to try again at the earliest. ``refused``:
    the same request would be refused again."""

    def __init__(self, reason: str, after_seconds: float = 0.0, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Provider:
    """What an API is like. ``header``: with the tags of responses. ``most``: tags of a request.

    ``purge``: path, headers and body for a zone, tags, and whether they only become stale. ``token``:
    the headers with the token.
    """

    url: str
    header: TagHeader
    most: int
    purge: Callable[[str, Sequence[str], bool], tuple[str, Mapping[str, str], Any]]
    token: Callable[[str], Mapping[str, str]]


def _fastly(zone: str, tags: Sequence[str], soft: bool) -> tuple[str, Mapping[str, str], Any]:
    # Not the header Surrogate-Key, whose size is limited.
    headers = {"Fastly-Soft-Purge": "1"} if soft else {}
    return f"/service/{zone}/purge", headers, {"surrogate_keys": list(tags)}


def _cloudflare(zone: str, tags: Sequence[str], _: bool) -> tuple[str, Mapping[str, str], Any]:
    return f"/zones/{zone}/purge_cache", {}, {"tags": list(tags)}


PROVIDERS = {
    "fastly": Provider(
        "https://api.fastly.com",
        "Surrogate-Key",
        256,
        _fastly,
        lambda token: {"Fastly-Key": token},
    ),
    "cloudflare": Provider(
        "https://api.cloudflare.com/client/v4",
        "Cache-Tag",
        100,
        _cloudflare,
        lambda token: {"Authorization": f"Bearer {token}"},
    ),
}


def header_of(cdn: CdnSettings) -> TagHeader | None:
    """The response header with tags, if there is one."""
    if cdn.header != "auto":
        return cdn.header
    return None if cdn.provider == "none" else PROVIDERS[cdn.provider].header


class CdnClient:
    """Sends requests to the API of ``cdn``. Its token is never in an error."""

    def __init__(self, session: ClientSession, cdn: CdnSettings, token: Callable[[], str]) -> None:
        assert cdn.provider != "none"
        self._session = session
        self._provider = PROVIDERS[cdn.provider]
        self._zone = cdn.zone
        self._base = (cdn.endpoint or self._provider.url).rstrip("/")
        self._token = token

    @classmethod
    @asynccontextmanager
    async def open(cls, cdn: CdnSettings) -> AsyncIterator["CdnClient"]:
        """A client while the context is open. Raises ConfigError if a token file cannot be read."""
        token = _token_of(cdn)
        async with ClientSession(
            cookie_jar=DummyCookieJar(), timeout=ClientTimeout(total=_TIMEOUT_SECONDS)
        ) as session:
            yield cls(session, cdn, token)

    @property
    def most(self) -> int:
        """The largest number of tags of a request."""
        return self._provider.most

    async def purge(self, tags: Sequence[str], *, soft: bool) -> None:
        """Purge up to ``most`` tags. ``soft``: what has them becomes stale, if the CDN can do that.
        Raises CdnError."""
        path, headers, body = self._provider.purge(self._zone, tags, soft)
        url, token = URL(f"{self._base}{path}", encoded=True), self._token()
        own = {
            "Accept": "application/json",
            "User-Agent": "prerender-proxy",
            **self._provider.token(token),
            **headers,
        }
        try:
            async with self._session.post(
                url, json=body, headers=own, allow_redirects=False
            ) as response:
                content = _parsed(await _body_of(response))
                status, after = response.status, response.headers.get("Retry-After", "")
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise CdnError(reason_of(error) or "timeout") from None
        first = _first_error(content)
        text = first.get("message") or content.get("msg")
        text = text.replace(token, "***") if isinstance(text, str) else ""
        text = text and f": {text[:_LONGEST_REASON]}"
        if not 200 <= status < 300:
            refused = status in _REFUSED and first.get("code") not in _OF_SETTINGS
            raise CdnError(f"status {status}{text}", seconds_of(after) or 0.0, refused=refused)
        # A proxy in between may have a page of its own.
        if not content or content.get("success") is False:
            raise CdnError(f"not successful{text}")


async def _body_of(response: ClientResponse) -> bytes:
    """The beginning of a body."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > _MOST_BYTES:
            break
    return bytes(body)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _first_error(content: Mapping[str, Any]) -> Mapping[str, Any]:
    errors = content.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    return first if isinstance(first, dict) else {}


def _token_of(cdn: CdnSettings) -> Callable[[], str]:
    if not cdn.token_file:
        return lambda: cdn.token
    try:
        file = WatchedFile(
            Path(cdn.token_file), _read_token, _LOOK_SECONDS, unreadable="cdn_token_unreadable"
        )
    except (OSError, ValueError) as error:
        reason = reason_of_file(error)
        raise ConfigError([f"[cdn] token_file: {cdn.token_file}: {reason}"]) from error

    def token() -> str:
        if file.due:
            file.look()
        return file.content

    return token


def _read_token(text: str) -> str:
    token = text.strip()
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("give a token of at least 16 ASCII characters, without spaces")
    return token
