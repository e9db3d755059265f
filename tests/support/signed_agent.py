"""An agent that signs its requests, and the HTTPS server of its keys.

It builds signature bases by itself, so that the product's library is not tested against itself.
"""

import asyncio
import base64
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp.connector
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from prerender.crawlers.key_directories import MEDIA_TYPE, WELL_KNOWN, thumbprint_of
from tests.support import certificates

Components = Sequence[tuple[str, str]]


def base_of(components: Components, parameters: str) -> str:
    """The signature base (RFC 9421, section 2.5) of (identifier, value)."""
    lines = [f"{identifier}: {value}" for identifier, value in components]
    return "\n".join((*lines, f'"@signature-params": {parameters}'))


def inner_list(components: Components, parameters: str) -> str:
    """The value of a member of Signature-Input."""
    return f"({' '.join(identifier for identifier, _ in components)}){parameters}"


def signed(
    key: Ed25519PrivateKey, components: Components, parameters: str, label: str = "sig1"
) -> dict[str, str]:
    """Signature-Input and Signature."""
    value = inner_list(components, parameters)
    signature = base64.b64encode(key.sign(base_of(components, value).encode())).decode()
    return {"Signature-Input": f"{label}={value}", "Signature": f"{label}=:{signature}:"}


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def jwk(key: Ed25519PrivateKey, **more: object) -> dict[str, object]:
    x = base64.urlsafe_b64encode(public_bytes(key)).rstrip(b"=").decode()
    return {"kty": "OKP", "crv": "Ed25519", "x": x, **more}


class SignedAgent:
    """``url``: its Signature-Agent."""

    def __init__(self, url: str, key: Ed25519PrivateKey | None = None) -> None:
        self.url = url
        self.key = key or Ed25519PrivateKey.generate()
        self.keyid = thumbprint_of(public_bytes(self.key))

    def headers(
        self,
        authority: str = "www.example.com",
        *,
        more: Components = (),
        bare: bool = False,
        now: float | None = None,
        **parameters: object,
    ) -> dict[str, str]:
        """The headers of a request, valid for a minute. ``bare``: with the string of earlier drafts;
        ``parameters``: of the signature, None to omit one."""
        created = int(time.time() if now is None else now)
        values = {
            "created": created,
            "expires": created + 60,
            "keyid": self.keyid,
            "tag": "web-bot-auth",
        } | parameters
        text = "".join(
            f";{name}={json.dumps(value)}" for name, value in values.items() if value is not None
        )
        agent = json.dumps(self.url)
        member = '"signature-agent"' if bare else '"signature-agent";key="sig1"'
        components = [('"@authority"', authority), (member, agent), *more]
        return {
            "Signature-Agent": agent if bare else f"sig1={agent}",
            **signed(self.key, components, text),
        }


class Directory:
    """An HTTPS server on localhost with the keys of an agent.

    ``answer`` makes other responses; while ``gate`` is cleared, there are none.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[web.BaseRequest] = []
        self.keys: list[Mapping[str, object]] = []
        self.headers: dict[str, str] = {}
        self.answer: Callable[[web.Request], web.StreamResponse] | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def origin(self) -> str:
        return f"https://localhost:{self.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        await self.gate.wait()
        if self.answer is not None:
            return self.answer(request)
        if request.path not in (WELL_KNOWN, "/jwks.json"):
            raise web.HTTPNotFound
        body = json.dumps({"keys": self.keys}).encode()
        return web.Response(body=body, headers={"Content-Type": MEDIA_TYPE, **self.headers})


@asynccontextmanager
async def directory_server(folder: Path) -> AsyncIterator[Directory]:
    """Run a directory, whose certificate this process trusts from now on."""
    file = folder / "directory.pem"
    # A name of its own, by which it is told from those of other tests.
    certificates.write(file, f"{secrets.token_hex(8)}.example", "localhost")
    aiohttp.connector._SSL_CONTEXT_VERIFIED.load_verify_locations(file)
    directory = Directory(0)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", directory.handle)
    server = TestServer(application, scheme="https", host="127.0.0.1")
    await server.start_server(ssl=certificates.server_context(file), shutdown_timeout=0.1)
    directory.port = server.port or 0
    try:
        yield directory
    finally:
        await server.close()
