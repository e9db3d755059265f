"""What one page asks the gateway for while it renders one target."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from multidict import CIMultiDict
from yarl import URL


@dataclass(frozen=True, slots=True)
class Document:
    """The target's document as the origin sent it, decoded from its content coding.

    ``headers`` are the end-to-end fields without length and coding.
    """

    status: int
    headers: CIMultiDict[str]
    body: bytes


_MEDIA = ("audio", "video", "track")
_PROGRAMS = ("script", "worker", "sharedworker")


@dataclass(slots=True)
class Exchange:
    """One request of the page. Times are ``time.monotonic()`` seconds."""

    method: str
    url: str
    destination: str
    started: float
    last_byte: float
    status: int = 0
    received_bytes: int = 0
    endless: bool = False
    blocked: bool = False
    finished: bool = False

    @property
    def is_program(self) -> bool:
        """Whether it is for code that the page runs."""
        return self.destination in _PROGRAMS

    def received(self, size: int) -> None:
        """Count bytes of the answer's body as they pass."""
        self.received_bytes += size
        self.last_byte = time.monotonic()


@dataclass(slots=True)
class Visit:
    """The gateway's side of one render: the document to hand over, and every request seen."""

    public: URL
    document: Document | None
    exchanges: list[Exchange] = field(default_factory=list)

    def take_document(self) -> Document | None:
        """The document, once: a reload or a frame of the same URL is a request of its own."""
        document, self.document = self.document, None
        return document

    @contextmanager
    def exchange(self, method: str, url: str, destination: str) -> Iterator[Exchange]:
        """Keep the record of one request, from its arrival to the last byte of its answer."""
        now = time.monotonic()
        record = Exchange(method, url, destination, now, now)
        self.exchanges.append(record)
        try:
            yield record
        finally:
            record.finished = True

    def only_hanging(self, patience_seconds: float) -> bool:
        """Whether there are unfinished requests, none of which is worth waiting for."""
        unfinished = any(not record.finished for record in self.exchanges)
        return unfinished and not self.waiting_for(patience_seconds)

    def waiting_for(self, patience_seconds: float) -> bool:
        """Whether an unfinished request is worth waiting for.

        An event stream never ends, and a request of a script that has been silent for longer than
        the patience may not either (a long poll): those do not count. Programs and styles are never
        polls, and no content comes from media.
        """
        oldest = time.monotonic() - patience_seconds
        return any(
            not record.finished
            and not record.endless
            and record.destination not in _MEDIA
            and (record.last_byte > oldest or record.is_program or record.destination == "style")
            for record in self.exchanges
        )
