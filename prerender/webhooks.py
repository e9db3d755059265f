"""Sends messages to the URL of the owner, as Standard Webhooks 1.0.0 specifies.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import asyncio
import base64
import hashlib
import hmac
import json
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from prerender.gateway.connection_errors import reason_of
from prerender.http.retry_after import seconds_of

# Pauses between the attempts of a message: 42 minutes together.
PAUSES_SECONDS = (1.0, 5.0, 30.0, 120.0, 600.0, 1800.0)
_TIMEOUT_SECONDS = 15.0
# One that does not respond occupies no more connections than this.
_MOST_AT_ONCE = 4
_GONE = 410

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """A message. ``id``: the same for all attempts, so that receivers notice repetitions; without a
    full stop. ``body``: JSON."""

    id: str
    body: str


def body_of(kind: str, at: float, data: Mapping[str, object], **more: object) -> str:
    """The body of a message. ``kind``: such as "snapshot.changed"; ``at``: Unix seconds."""
    return json.dumps({"type": kind, "timestamp": timestamp(at), **more, "data": data})


def timestamp(at: float) -> str:
    """A time in Unix seconds as messages have it (RFC 3339, section 5.6)."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def key_of(secret: str) -> bytes:
    """The key of a secret: ``whsec_``, and bytes in Base64."""
    return base64.b64decode(secret.removeprefix("whsec_"))


def signature(key: bytes, message: Message, at: int) -> str:
    """The signature of an attempt at this time."""
    text = f"{message.id}.{at}.{message.body}".encode()
    return f"v1,{base64.b64encode(hmac.digest(key, text, hashlib.sha256)).decode()}"


class Webhooks:
    """Sends messages to ``url``.

    Each is signed with all ``keys``, so that a new secret can be added before the old one goes. The URL
    is the owner's choice, so the address policy does not apply; redirects are not followed.
    """

    def __init__(
        self,
        session: ClientSession,
        url: str,
        keys: Sequence[bytes],
        pauses: Sequence[float] = PAUSES_SECONDS,
    ) -> None:
        self._session = session
        self._url = URL(url, encoded=True)
        self._keys = keys
        self._pauses = pauses
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, keys: Sequence[bytes], *, pauses: Sequence[float] = PAUSES_SECONDS
    ) -> AsyncIterator["Webhooks"]:
        """A client while the context is open."""
        async with ClientSession(
            cookie_jar=DummyCookieJar(), timeout=ClientTimeout(total=_TIMEOUT_SECONDS)
        ) as session:
            yield cls(session, url, keys, pauses)

    async def deliver(self, message: Message) -> bool:
        """Send a message, again and again if need be. Returns whether it has arrived."""
        for number, pause in enumerate((*self._pauses, None), 1):
            async with self._places:
                problem, after = await self._attempt(message)
            if not problem:
                log.info("webhook_delivered", id=message.id, attempts=number)
                return True
            wait = None if pause is None else max(pause * random.uniform(0.8, 1.2), after)  # noqa: S311
            again = {} if wait is None else {"again_in_seconds": round(wait, 1)}
            log.warning("webhook_not_delivered", id=message.id, reason=problem, **again)
            if wait is None or problem == f"status {_GONE}":
                break
            await asyncio.sleep(wait)
        return False

    async def _attempt(self, message: Message) -> tuple[str, float]:
        """Send a message. Returns what went wrong or "", and for how many seconds to wait at least."""
        now = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "prerender-proxy",
            "webhook-id": message.id,
            "webhook-timestamp": str(now),
            "webhook-signature": " ".join(signature(key, message, now) for key in self._keys),
        }
        try:
            async with self._session.post(
                self._url, data=message.body.encode(), headers=headers, allow_redirects=False
            ) as response:
                status, after = response.status, response.headers.get("Retry-After", "")
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            return reason_of(error) or "timeout", 0.0
        if 200 <= status < 300:
            return "", 0.0
        return f"status {status}", seconds_of(after) or 0.0
