"""The tools of the MCP server (https://modelcontextprotocol.io): the admin API of a running proxy.

Requires the package ``mcp``, the official SDK: pip install 'prerender-proxy[mcp]'.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from prerender import __version__
from prerender.admin.client import AdminClient
from prerender.errors import AdminError

_INSTRUCTIONS = """\
Operates prerender-proxy, which answers crawlers with HTML snapshots of JavaScript pages.
Ask `explain` first why a URL gets its response, and `problems` which pages need attention.
`purge` and `render` change what crawlers get: `render` replaces one page, `purge` deletes snapshots,
which are rendered again when they are requested."""
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_RENDERS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_DELETES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)

_TABLES = (
    "visits: requests of crawlers; errors: 4xx and 5xx; change: before and after a date; pages: last "
    "visits; gap: pages of the sitemap that no search engine and no AI crawler has fetched; snapshots: "
    "noindex, titles, canonicals, thin pages"
)

JsonObject = dict[str, Any]
URL = Annotated[str, Field(description="A pretty, ugly or ordinary URL of the site, or a path")]
TextList = Annotated[list[str], Field(default_factory=list)]
Table = Literal["visits", "errors", "change", "pages", "gap", "snapshots"]


def server_of(admin: AdminClient, render_seconds: float) -> MCPServer:
    """The server for the proxy behind ``admin``. ``render_seconds``: how long a render may take."""
    server = MCPServer(
        "prerender-proxy", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )

    @server.tool(annotations=_READS)
    async def explain(url: URL, user_agent: str = "") -> JsonObject:
        """Say how the proxy would respond to a request, and why: the decision, the stored snapshot, its
        freshness, and what came of the last render."""
        return await _result_of(lambda: admin.explain({"url": url, "user_agent": user_agent}))

    @server.tool(annotations=_RENDERS)
    async def render(url: URL) -> JsonObject:
        """Render a page now, and store the new snapshot if it is good enough."""
        return await _result_of(lambda: admin.rendered(url, render_seconds))

    @server.tool(annotations=_READS)
    async def report(
        *,
        table: Annotated[Table, Field(description=_TABLES)] = "visits",
        days: int | None = None,
        by: Annotated[str, Field(description='crawler, day, folder, or "day,crawler"')] = "",
        crawler: str = "",
        date: Annotated[str, Field(description="of change: YYYY-MM-DD")] = "",
        search: Annotated[str, Field(description="of pages: a text in their URLs")] = "",
        unvisited_by: Annotated[str, Field(description='of pages: "search,ai_search"')] = "",
        sitemap: Annotated[str, Field(description="of gap")] = "",
        finding: Annotated[
            str, Field(description='of snapshots: "noindex", "thin-text", ...')
        ] = "",
        limit: int | None = None,
    ) -> JsonObject:
        """What crawlers got: a table of the report. Options that a table does not take are errors."""
        given = {
            "days": days, "by": by, "crawler": crawler, "date": date, "search": search,
            "unvisited_by": unvisited_by, "sitemap": sitemap, "finding": finding, "limit": limit,
        }  # fmt: skip
        query: dict[str, object] = {name: value for name, value in given.items() if value}
        if table == "errors":
            query["only"] = "errors"
        name = "visits" if table == "errors" else table
        return await _result_of(lambda: json.loads(admin.report(name, query)))

    @server.tool(annotations=_DELETES)
    async def purge(
        *,
        url: TextList,
        prefix: TextList,
        pattern: TextList,
        tag: TextList,
        all_pages: bool = False,
        soft: bool = False,
    ) -> JsonObject:
        """Delete snapshots: of these URLs, of URLs that begin with a prefix or match a pattern (* is
        any text), with a cache tag, or of all pages. With soft, they are served until there are new
        ones."""
        what = {"url": url, "prefix": prefix, "pattern": pattern, "tag": tag}
        return await _result_of(
            lambda: {"snapshots": admin.purge({**what, "all": all_pages, "soft": soft})}
        )

    @server.tool(annotations=_READS)
    async def problems() -> JsonObject:
        """The pages with most problems in the last renders, each with its causes."""
        return await _result_of(admin.problems)

    return server


async def _result_of(ask: Callable[[], JsonObject]) -> JsonObject:
    try:
        return await asyncio.to_thread(ask)
    except AdminError as error:
        raise ToolError(str(error)) from error
