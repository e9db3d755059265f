"""Client of the admin listener, for commands."""

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any

from prerender.config import Settings
from prerender.config.types import AUTO
from prerender.errors import AdminError

_TIMEOUT_SECONDS = 30.0
# Wildcard addresses to listen on, and the addresses to connect to.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def purge(settings: Settings, what: Mapping[str, object]) -> None:
    """Purge snapshots. Raises AdminError."""
    _post(settings, "/api/v1/purge", what)


def render(settings: Settings, url: str) -> bool:
    """Render a page again. Returns whether a new snapshot is stored. Raises AdminError."""
    # It may have to wait for another replica before it is rendered.
    timeout = _TIMEOUT_SECONDS + 2 * settings.render.timeout
    return bool(_post(settings, "/api/v1/render", {"url": url}, timeout).get("kept"))


def import_pages(
    settings: Settings, pages: Sequence[Mapping[str, object]], *, fresh: bool
) -> dict[str, int]:
    """Import pages of an export. Counts those "kept", "newer" and "not kept". Raises AdminError."""
    answer = _post(settings, "/api/v1/import", {"pages": pages, "fresh": fresh})
    return {name: int(answer[name]) for name in ("kept", "newer", "not kept")}


def crawlers(settings: Settings) -> dict[str, Any]:
    """The crawlers of the last hour (models.CrawlerList). Raises AdminError."""
    return _request(settings, "GET", "/api/v1/crawlers")


def _post(
    settings: Settings,
    path: str,
    what: Mapping[str, object],
    timeout: float = _TIMEOUT_SECONDS,
) -> dict[str, Any]:
    """POST JSON and return the response. Raises AdminError."""
    return _request(settings, "POST", path, json.dumps(what), timeout)


def _request(
    settings: Settings,
    method: str,
    path: str,
    body: str | None = None,
    timeout: float = _TIMEOUT_SECONDS,
) -> dict[str, Any]:
    if settings.admin.token == AUTO:
        raise AdminError('[admin] token is "auto", which only the proxy knows: set your own')
    host = _LOOPBACK.get(settings.admin.host, settings.admin.host)
    connection = http.client.HTTPConnection(host, settings.admin.port, timeout=timeout)
    headers = {
        "Authorization": f"Bearer {settings.admin.token}",
        "Content-Type": "application/json",
    }
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    except OSError as error:
        reason = error.strerror or str(error)
        raise AdminError(
            f"cannot connect to {host}:{settings.admin.port} ([admin] host, port): {reason}"
        ) from error
    except (http.client.HTTPException, ValueError) as error:
        raise AdminError(
            f"{host}:{settings.admin.port} ([admin] host, port) is not the admin listener"
        ) from error
    finally:
        connection.close()
    if response.status != 200:
        raise AdminError(
            f"[admin] {host}:{settings.admin.port}: {answer.get('detail')}", response.status
        )
    return answer
