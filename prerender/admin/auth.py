"""Who may use the admin listener: by a token, or without one on loopback only.

- Every request but those for health and metrics, and for the dashboard's own files, needs the token:
  ``Authorization: Bearer``, or the cookie that the dashboard gets for it. Without a token to know there
  is no way in but loopback, which the settings see to.
- The Host has to be a loopback one or one of ``[admin] hosts``, so that no site can have its name
  resolved to this listener and then read from it (DNS rebinding). A bearer token needs no such care:
  browsers do not send it by themselves.
- What changes something has to come from here: a browser tells its Origin, and the body is JSON, which
  other sites cannot send without asking first. The cookie is SameSite=Strict.
"""

import hashlib
import hmac
import time
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from prerender.admin.problem import problem
from prerender.urls.hosts import is_loopback

COOKIE = "prerender_admin"
SESSION_SECONDS = 12 * 3600
# Asked by machines that have no token, or bring their own.
_OPEN = ("/healthz", "/readyz", "/metrics")
_SAFE = ("GET", "HEAD")
_SESSION = "/api/v1/session"


class AdminAuth:
    """Lets requests pass or answers them with a problem; to be used as a middleware.

    ``token``: "" where there is none; ``hosts``: names beside loopback's under which it is reached.
    """

    def __init__(self, token: str, hosts: Iterable[str]) -> None:
        self._token = token.encode()
        self._hosts = frozenset(host.lower() for host in hosts)
        self._key = hashlib.blake2b(self._token, person=b"admin session").digest()

    @property
    def needs_token(self) -> bool:
        """Whether there is a token to know."""
        return bool(self._token)

    @property
    def middleware(self) -> Middleware:
        """The guard as aiohttp wants it."""

        @web.middleware
        async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._pass(request, handler)

        return authenticate

    async def _pass(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # With that, explain.py answers at any path.
        if request.path in _OPEN and "_prerender" not in request.query:
            return await handler(request)
        if self._bears_token(request):
            return await handler(request)
        if not _is_own_file(request) and not self.knows(request):
            refusal = problem(401, "the token is wrong or missing")
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        if reason := self._foreign(request):
            return problem(403, reason)
        return await handler(request)

    def knows(self, request: web.Request) -> bool:
        """Whether who asks has shown the token, or need not."""
        if not self._token or self._bears_token(request):
            return True
        until, _, signature = request.cookies.get(COOKIE, "").partition(".")
        right = hmac.compare_digest(signature.encode(), self._sign(until).encode())
        return right and until.isascii() and until.isdigit() and int(until) > time.time()

    def is_token(self, given: object) -> bool:
        """Whether that is the token. Takes as long for every one that is not."""
        text = given if isinstance(given, str) else ""
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self._token)

    def session(self) -> str:
        """The value of the cookie for who has shown the token."""
        until = str(int(time.time()) + SESSION_SECONDS)
        return f"{until}.{self._sign(until)}"

    def _sign(self, until: str) -> str:
        return hmac.new(self._key, until.encode("utf-8", "surrogatepass"), "sha256").hexdigest()

    def _bears_token(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        bears = scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("utf-8", "surrogateescape"), self._token
        )
        return bool(self._token) and bears

    def _foreign(self, request: web.Request) -> str:
        """Why a request may be a doing of another site in somebody's browser, or ''."""
        host = _name(f"//{request.host}")
        # Where a token is needed any address may be the right one: it cannot be resolved to another.
        if not self._is_ours(host) and not (self._token and _is_address(host)):
            return f"the Host {request.host!r} is not known here: name it in [admin] hosts"
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            if request.method in _SAFE and request.headers.get("Sec-Fetch-Mode") == "navigate":
                return ""  # a link to the dashboard; what it then asks comes from here
            return "another site asks"
        if request.method in _SAFE:
            return ""
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_ours(_name(origin)) and _name(origin) != host:
            return f"the Origin {origin!r} is another site's"
        if request.method != "DELETE" and request.content_type != "application/json":
            return "give Content-Type: application/json"
        return ""

    def _is_ours(self, host: str) -> bool:
        return is_loopback(host) or host in self._hosts


def _is_own_file(request: web.Request) -> bool:
    """Whether it is for a file of the dashboard, or for the way in: nothing of the site is there."""
    if "_prerender" in request.query:
        return False  # explain.py answers it, at any path
    return request.path in ("/", _SESSION) or request.path.startswith("/dashboard/")


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
