"""Who may change something by the admin listener: whoever knows ``[admin] token``."""

import hmac

from aiohttp import web


def refused(request: web.Request, token: str) -> web.Response | None:
    """The answer to a request without the token; None if it may pass. With no token nobody may."""
    if not token:
        return refusal(403, "nobody may do that: [admin] token is not set")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    known = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode())
    if scheme.lower() == "bearer" and known:
        return None
    response = refusal(401, "the token is wrong or missing")
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def refusal(status: int, reason: str) -> web.Response:
    """An answer that says what is wrong."""
    return web.json_response({"error": reason}, status=status)
