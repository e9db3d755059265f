"""Authentication and CSRF protection of the admin listener.

- All requests except health checks, metrics and the dashboard's own files need the token, as
  ``Authorization: Bearer`` or as the session cookie. Without a token the listener must be on loopback,
  which the settings enforce.
- The Host must be a loopback name or one of ``[admin] hosts``, so that no site can resolve its name to
  this listener and read from it (DNS rebinding). Requests with a bearer token are exempt: browsers do
  not send it by themselves.
- Requests that change something must be same-origin, and their body must be JSON, which other sites
  cannot send without a CORS preflight. The cookie is SameSite=Strict.
"""

import hashlib
import hmac
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from prerender.admin.problem_details import problem
from prerender.admin.token_file import TokenFile
from prerender.urls.hosts import is_address, is_loopback

COOKIE = "prerender_admin"
SESSION_SECONDS = 12 * 3600
# Paths without authentication: health checks and metrics.
_OPEN = ("/healthz", "/readyz", "/readyz/queue", "/metrics")
_SAFE = ("GET", "HEAD")
_SESSION = "/api/v1/session"


class AdminAuth:
    """Middleware that authorizes requests or responds with a problem.

    ``tokens``: those of the settings, ``file``: more tokens; ``hosts``: allowed host names in addition
    to loopback.
    """

    def __init__(
        self, tokens: Iterable[str], hosts: Iterable[str], file: TokenFile | None = None
    ) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self.renew_tokens(tokens, file)

    def renew_tokens(self, tokens: Iterable[str], file: TokenFile | None = None) -> None:
        """Replace all tokens. Sessions end with the token that opened them."""
        self._tokens = tuple(tokens)
        self._file = file

    @property
    def needs_token(self) -> bool:
        """Whether a token is set."""
        return bool(self._tokens) or self._file is not None

    def _token(self, given: str) -> str:
        """The token that equals ``given``, in constant time; "" if none does."""
        octets = given.encode("utf-8", "surrogatepass")
        equal = [token for token in self._valid() if hmac.compare_digest(octets, token.encode())]
        return equal[0] if equal else ""

    def _valid(self) -> tuple[str, ...]:
        """An empty token would make a key that everybody can compute."""
        return tuple(filter(None, (*self._tokens, *(self._file.tokens() if self._file else ()))))

    @property
    def middleware(self) -> Middleware:
        """The aiohttp middleware."""

        @web.middleware
        async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._pass(request, handler)

        return authenticate

    async def _pass(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in _OPEN:
            return await handler(request)
        if self._bears_token(request):
            return await handler(request)
        if not _is_own_file(request) and not self.knows(request):
            refusal = problem(401, "the token is missing or wrong")
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        if reason := self._foreign(request):
            return problem(403, reason)
        return await handler(request)

    def knows(self, request: web.Request) -> bool:
        """Whether a request is authenticated, or needs not be."""
        if not self.needs_token or self._bears_token(request):
            return True
        until, _, signature = request.cookies.get(COOKIE, "").partition(".")
        # aiohttp decodes octets that are no UTF-8 to surrogates.
        given = signature.encode("utf-8", "surrogatepass")
        right = any(
            hmac.compare_digest(given, _signed(token, until).encode()) for token in self._valid()
        )
        return right and until.isascii() and until.isdigit() and int(until) > time.time()

    def session(self, given: str) -> str:
        """The value of a new session cookie for who gives a token; "" if it is wrong."""
        token = self._token(given)
        if token != given or (self.needs_token and not token):
            return ""
        until = str(int(time.time()) + SESSION_SECONDS)
        return f"{until}.{_signed(token, until)}"

    def _bears_token(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and bool(self._token(given.strip()))

    def _foreign(self, request: web.Request) -> str:
        """Why a request may be forged by another site in the user's browser, or ''."""
        host = _name(f"//{request.host}")
        # With a token, any IP address is allowed as Host: DNS rebinding needs a name.
        if not self._is_ours(host) and not (self.needs_token and is_address(host)):
            return f"unknown Host {request.host!r}: add it to [admin] hosts"
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            if request.method in _SAFE and request.headers.get("Sec-Fetch-Mode") == "navigate":
                return ""  # a link to the dashboard, whose own requests are same-origin
            return "cross-site request"
        if request.method in _SAFE:
            return ""
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_ours(_name(origin)) and _name(origin) != host:
            return f"cross-origin request from {origin!r}"
        if request.method != "DELETE" and request.content_type != "application/json":
            return "Content-Type must be application/json"
        return ""

    def _is_ours(self, host: str) -> bool:
        return is_loopback(host) or host in self._hosts


def _signed(token: str, until: str) -> str:
    key = hashlib.blake2b(token.encode(), person=b"admin session").digest()
    return hmac.new(key, until.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def _is_own_file(request: web.Request) -> bool:
    """Whether the request is for a file of the dashboard or for the session: neither has site data."""
    return request.path in ("/", _SESSION) or request.path.startswith("/dashboard/")


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
