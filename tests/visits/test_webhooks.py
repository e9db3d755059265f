"""Webhooks: signed and repeated. The receivers are real."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from prerender.webhooks import Message, Webhooks, body_of, key_of, signature
from tests.conftest import StartOrigin

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = f"whsec_{base64.b64encode(b'another secret of 32 bytes......').decode()}"
SECONDS = 20.0
Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Receiver:
    """Responds as the next of ``responses`` says, or with 204. Refuses what is not signed right."""

    def __init__(self, secret: str = SECRET) -> None:
        self.key = base64.b64decode(secret.removeprefix("whsec_"))
        self.messages: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.attempts: list[str] = []
        self.responses: list[Respond] = []
        self.url = ""

    async def receive(self, request: web.Request) -> web.StreamResponse:
        body, headers = await request.read(), request.headers
        name, at = headers["webhook-id"], headers["webhook-timestamp"]
        assert abs(time.time() - int(at)) < 300
        text = f"{name}.{at}.".encode() + body
        expected = base64.b64encode(hmac.new(self.key, text, hashlib.sha256).digest()).decode()
        assert f"v1,{expected}" in headers["webhook-signature"].split(" ")
        self.attempts.append(name)
        response = (
            await self.responses.pop(0)(request) if self.responses else web.Response(status=204)
        )
        if 200 <= response.status < 300:
            self.messages.put_nowait((name, json.loads(body)))
        return response

    async def message(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(SECONDS):
            return await self.messages.get()


def status(code: int, **headers: str) -> Respond:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers=headers)

    return respond


async def close(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response(status=500)


@pytest.fixture
async def receiver(start_origin: StartOrigin) -> Receiver:
    receiver = Receiver()
    application = web.Application()
    application.router.add_post("/hook", receiver.receive)
    receiver.url = f"{(await start_origin(application)).url}/hook"
    return receiver


@asynccontextmanager
async def sending(
    url: str, *secrets: str, pauses: tuple[float, ...] = (0.01,) * 6
) -> AsyncIterator[Webhooks]:
    keys = [key_of(secret) for secret in secrets or (SECRET,)]
    async with Webhooks.open(url, keys, pauses=pauses) as webhooks:
        yield webhooks


def message(number: int) -> Message:
    return Message(f"msg_{number}", body_of("test.happened", 1_764_147_600.0, {"number": number}))


def test_the_signature_is_that_of_the_specification() -> None:
    """The test vector of its libraries."""
    vector = Message("msg_p5jXN8AQM9LWM0D4loKWxJek", '{"test": 2432232314}')
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature(key_of(SECRET), vector, 1614265330) == expected


async def test_a_receiver_that_fails_twice_gets_the_message(receiver: Receiver) -> None:
    receiver.responses += [status(500), close]
    async with sending(receiver.url, OTHER, SECRET) as webhooks:
        assert await webhooks.deliver(message(1))
    assert receiver.attempts == ["msg_1"] * 3
    assert await receiver.message() == (
        "msg_1",
        {"type": "test.happened", "timestamp": "2025-11-26T09:00:00Z", "data": {"number": 1}},
    )


@pytest.mark.parametrize(
    ("respond", "attempts"),
    [(status(302, Location="/hook"), 3), (status(400), 3), (status(410), 1), (close, 3)],
)
async def test_what_never_arrives_is_given_up(
    receiver: Receiver, respond: Respond, attempts: int
) -> None:
    receiver.responses += [respond] * attempts
    async with sending(receiver.url, pauses=(0.01, 0.01)) as webhooks:
        assert not await webhooks.deliver(message(1))
        assert await webhooks.deliver(message(2))
    assert receiver.attempts == ["msg_1"] * attempts + ["msg_2"]


async def test_retry_after_counts(receiver: Receiver) -> None:
    receiver.responses.append(status(429, **{"Retry-After": "1"}))
    async with sending(receiver.url) as webhooks:
        began = time.monotonic()
        assert await webhooks.deliver(message(1))
        assert time.monotonic() - began >= 1


async def test_nobody_listens(unused_tcp_port: int) -> None:
    async with sending(f"http://127.0.0.1:{unused_tcp_port}/", pauses=(0.01,)) as webhooks:
        assert not await webhooks.deliver(message(1))
