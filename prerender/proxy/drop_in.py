"""Drop-in replacement of Prerender and Rendertron: middlewares request pages by their whole URLs.

Such a request is rewritten to the request that the crawler sent to the site. The forms, and who sends
them:

    /https://www.example.com/a?b=c            prerender-node, prerender_rails, Cloudflare workers
    /https:/www.example.com/a?b=c             the same through a server that merges slashes
    /https://www.example.com/a%3Fb=c          nginx's rewrite, which escapes ? and % again
    /https%3A%2F%2Fwww.example.com%2Fa        completely escaped; a query after it is the renderer's
    /render/https%3A%2F%2F...                 middlewares of Rendertron
    /render?url=https%3A%2F%2F...             users, and the newer API of Prerender
"""

import hmac
import re
from dataclasses import replace
from urllib.parse import unquote_to_bytes

from yarl import URL

from prerender.errors import ForeignPage, MalformedPage, TokenMissing, TokenWrong
from prerender.http.fields import Fields
from prerender.http.forwarding_headers import MARK, authority
from prerender.http.message_head import Request
from prerender.urls.addresses import parts_of
from prerender.urls.ajax_crawling import pretty_to_ugly
from prerender.urls.hosts import Hosts, normalized

TOKEN = "x-prerender-token"  # noqa: S105 - the name of a field

_WHOLE = re.compile(r"/(?:render/)?(https?)(://?|%3A%2F%2F?)(.+)", re.IGNORECASE | re.DOTALL)
_AS_PARAMETER = re.compile(
    r"/render/?\?(?:[^&]*&)*?url=(https?(?::|%3A)[^&]+)(?:&.*)?", re.IGNORECASE
)
# How nginx escapes path and query together (ngx_escape_uri): every ? and %, and octets that are not
# allowed in URLs.
_BY_NGINX = re.compile(r"(?:[^%?]|%(?:25[0-9A-Fa-f]{2}|3F|2[03]|7F|[0189A-F][0-9A-F]))*")
_ESCAPED_AGAIN = re.compile(r"%25|%3F")
_WEB_PORTS = (80, 443)


def page_url(target: str) -> str | None:
    """The whole URL of the requested page if the request target has one of the forms, else None.

    An unescaped URL stays unchanged, unless it looks as if nginx had escaped it: then it is unescaped
    once. ``+`` is a plus sign.
    """
    if match := _AS_PARAMETER.fullmatch(target):
        return _unescaped(match[1])
    match = _WHOLE.fullmatch(target)
    if match is None:
        return None
    scheme, separator, rest = match.groups()
    if "%" in separator:
        rest = _unescaped(rest.partition("?")[0])
    elif _BY_NGINX.fullmatch(rest) and _ESCAPED_AGAIN.search(rest):
        rest = _unescaped(rest)
    return f"{scheme.lower()}://{rest.lstrip('/')}"


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "surrogateescape")


class DropIn:
    """Accepts requests for pages of the site at ``public``, also under other names (``hosts``).

    If ``token`` is set, requests must carry it.
    """

    def __init__(self, public: URL, hosts: Hosts, token: str) -> None:
        self._public = public
        self._host = normalized(public.raw_host or "")
        self._ports = (*_WEB_PORTS, public.port)
        self._hosts = hosts
        self._token = token.encode()

    def read(self, request: Request) -> tuple[Request, bool]:
        """A request as the crawler sent it, and whether it was in one of the forms.

        The token is removed. Requests in one of the forms are marked as a renderer's, in case the
        middleware is in the site itself. Raises Refused.
        """
        tokens = request.headers.values(TOKEN)
        url = page_url(request.target) if request.method in ("GET", "HEAD") else None
        if tokens or url is not None:
            # Do not forward the token.
            lines = [line for line in request.headers.lines if line[0] != TOKEN]
            if url is not None:
                lines.append((MARK.lower(), f"{MARK}: 1".encode()))
            request = replace(request, headers=Fields(lines))
        if url is None:
            return request, False
        if self._token and not tokens:
            raise TokenMissing
        if self._token and not hmac.compare_digest(tokens[0], self._token):
            raise TokenWrong
        request = request.with_target(self._target(url))
        return replace(request, host=authority(self._public)), True

    def _target(self, url: str) -> str:
        try:
            path, fragment = parts_of(url)
        except ValueError as error:
            raise MalformedPage(url) from error
        parsed = URL(url, encoded=True)
        host, port = normalized(parsed.raw_host or ""), parsed.port or 0
        if not (host == self._host and port in self._ports) and not self._hosts.named(host, port):
            raise ForeignPage(url)
        if fragment.startswith("!"):
            return pretty_to_ugly(f"{path}#{fragment}") or path
        return path
