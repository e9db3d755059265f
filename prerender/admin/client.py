"""Client of the admin listener, for commands."""

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from prerender.admin.token_file import TokenFile
from prerender.config.settings import AdminSettings
from prerender.config.types import AUTO
from prerender.errors import AdminError

_TIMEOUT_SECONDS = 30.0
# It may read a sitemap or list the store first.
_LONG_SECONDS = 120.0
# Wildcard addresses to listen on, and the addresses to connect to.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


@dataclass(frozen=True, slots=True)
class AdminClient:
    """Sends requests to the admin listener at ``url`` (scheme, host and port).

    ``named``: where the URL comes from, for errors, which are raised as AdminError.
    """

    url: str
    token: str
    named: str

    @classmethod
    def of(cls, settings: AdminSettings, url: str | None = None) -> "AdminClient":
        """The listener of the settings, or the one at ``url`` with the token of the settings."""
        tokens = () if settings.token == (AUTO,) else settings.token
        if not tokens and settings.token_file:
            tokens = TokenFile(settings.token_file).tokens()
        if not tokens and settings.token:
            raise AdminError(
                '[admin] token is "auto": the proxy made its token at startup. Set '
                'PRERENDER_ADMIN_TOKEN to admin_token of its log line "serving", or configure a '
                "token of your own"
            )
        token = tokens[0] if tokens else ""
        if url:
            return cls(url, token, "--admin")
        host = _LOOPBACK.get(settings.host, settings.host)
        host = f"[{host}]" if ":" in host else host
        return cls(f"http://{host}:{settings.port}", token, "[admin] host, port")

    def purge(self, what: Mapping[str, object]) -> int | None:
        """Purge snapshots. Returns how many it applied to; None: the store cannot count them."""
        reply = self._ask("POST", "purge", {**what, "count": True}, _LONG_SECONDS)
        snapshots: int | None = reply.get("snapshots")
        return snapshots

    def rendered(self, url: str, timeout: float) -> dict[str, Any]:
        """Render a page again, in ``timeout`` seconds: models.Rendered."""
        # A running render of the page is awaited first.
        return self._ask("POST", "render", {"url": url}, _TIMEOUT_SECONDS + 2 * timeout)

    def create_job(self, body: Mapping[str, object]) -> dict[str, Any]:
        """Create a job; it may take its time to store a long list."""
        return self._ask("POST", "jobs", body, _LONG_SECONDS)

    def job(self, job: str) -> dict[str, Any]:
        """How far a job is."""
        return self._ask("GET", f"jobs/{job}")

    def job_pages(self, job: str, outcome: str) -> list[dict[str, Any]]:
        """Some pages of a job with this outcome."""
        return list(self._ask("GET", f"jobs/{job}/pages?outcome={outcome}")["items"])

    def cancel_job(self, job: str) -> None:
        """Cancel a job."""
        self._ask("DELETE", f"jobs/{job}")

    def problems(self) -> dict[str, Any]:
        """The pages with most problems."""
        return self._ask("GET", "problems")

    def import_pages(
        self, site: str, pages: Sequence[Mapping[str, object]], *, fresh: bool
    ) -> dict[str, int]:
        """Import pages of an export of ``site``. Counts them by outcome (export/imports.py)."""
        reply = self._ask("POST", "import", {"site": site, "pages": pages, "fresh": fresh})
        return {name: int(count) for name, count in reply.items()}

    def crawlers(self) -> dict[str, Any]:
        """The crawlers of the last hour (models.CrawlerList)."""
        return self._ask("GET", "crawlers")

    def explain(self, query: Mapping[str, object]) -> dict[str, Any]:
        """Explain how the proxy would respond to a request."""
        return self._ask("GET", f"explain?{urlencode(query, doseq=True)}")

    def report(self, table: str, query: Mapping[str, object]) -> str:
        """A table of the report: JSON, or CSV with the format "csv"."""
        path = f"report/{table}?{urlencode(query)}"
        return self._body("GET", path, None, _LONG_SECONDS).decode()

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        timeout: float = _TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """Send a request and return the JSON of its response."""
        content: dict[str, Any] = json.loads(self._body(method, path, body, timeout))
        return content

    def _body(
        self, method: str, path: str, body: Mapping[str, object] | None, timeout: float
    ) -> bytes:
        """Send a request and return the body of its response: a JSON object, or CSV."""
        parts = urlsplit(self.url)
        secure = parts.scheme == "https"
        connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = connect(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        at = f"{self.url} ({self.named})"
        is_connected = False
        try:
            connection.connect()
            is_connected = True
            connection.sock.settimeout(timeout)
            connection.request(
                method, f"/api/v1/{path}", None if body is None else json.dumps(body), headers
            )
            response = connection.getresponse()
            got = response.read()
            is_csv = response.getheader("Content-Type", "").startswith("text/csv")
            reply = {} if is_csv else json.loads(got)
            if not isinstance(reply, dict):
                raise ValueError("not an object")
        except OSError as error:
            problem = f"{at} did not respond: {error.strerror or error}"
            if not is_connected:
                problem = f"cannot connect to {at}: {error.strerror or error}"
            elif isinstance(error, TimeoutError):
                problem = f"{at} did not respond within {timeout:g} s; it may still be at work"
            raise AdminError(problem) from error
        except (http.client.HTTPException, ValueError) as error:
            raise AdminError(f"{at} is not the admin listener") from error
        finally:
            connection.close()
        if response.status != 200:
            detail = reply.get("detail") or f"status {response.status}"
            raise AdminError(f"{at}: {detail}", response.status)
        return got
