"""What the handler needs of Markdown URLs and the headers that name them (extensions/markdown)."""

from typing import Protocol

from prerender.http.message_head import Request, ResponseHead
from prerender.snapshots.snapshot import SnapshotResult
from prerender.snapshots.target import Target


class Discovery(Protocol):
    """Markdown URLs of pages, and the headers that lead to them."""

    def page_of(self, target: str) -> str | None:
        """The request target of the page of a Markdown URL; None for any other request target."""
        ...

    async def origin_has(self, target: str) -> bool:
        """Whether the origin has a file of its own at a Markdown URL."""
        ...

    def shown(
        self, target: Target, result: SnapshotResult, at_markdown_url: bool, /
    ) -> tuple[SnapshotResult, bytes]:
        """What a client gets for a result, in HTML or Markdown, and header lines of it."""
        ...

    def of_forwarded(self, request: Request, response: ResponseHead, /) -> bytes:
        """Header lines of a response of the origin."""
        ...
