"""Finds sections of the site whose pages need no render: without scripts they show the same."""

import json
from threading import Lock

from cachetools import LRUCache

from prerender.gateway.document import Document
from prerender.http.fields import charset_of
from prerender.snapshots.sameness import needs_no_render, section_pattern
from prerender.snapshots.snapshot import HTML, Snapshot
from prerender.snapshots.target import Target
from prerender.telemetry.config_notices import Notices
from prerender.telemetry.records import RenderRecord

_MOST_SECTIONS = 500
# A section is named after so many renders without a difference. Of further ones, few are compared.
_ENOUGH = 10
_SHARE = 32
_MOST_NAMED = 5


class Needless:
    """Compares snapshots with their documents, in the threads that build them. One that differs settles
    it for its section, until the process ends."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        # Renders by pattern; negative: one differed.
        self._renders: LRUCache[str, int] = LRUCache(_MOST_SECTIONS)
        self._lock = Lock()
        self._new = False

    def built(self, snapshot: Snapshot, target: Target, document: Document) -> None:
        """Compare a new snapshot."""
        if snapshot.status != 200 or snapshot.content_type != HTML or "#" in target.path:
            return
        if snapshot.facts.verdict != "complete":
            return
        pattern = section_pattern(target.path)
        with self._lock:
            count = self._renders.get(pattern, 0)
            if count < 0:
                return
            self._renders[pattern] = count + 1
        if count < _ENOUGH or not count % _SHARE:
            charset = charset_of(document.headers.get("Content-Type", ""))
            same = needs_no_render(document.body, charset, snapshot.body)
            with self._lock:
                if not same:
                    self._renders[pattern] = -1
                self._new = self._new or not same or count + 1 >= _ENOUGH

    def rendered(self, _: RenderRecord) -> None:
        """Say what was found."""
        if not self._new:
            return
        with self._lock:
            self._new = False
            patterns = sorted(name for name, count in self._renders.items() if count >= _ENOUGH)
        if not patterns:
            self._notices.withdraw("needless_renders")
            return
        names = ", ".join(map(json.dumps, patterns[:_MOST_NAMED]))
        self._notices.warn(
            "needless_renders",
            consequence=f"pages like {names} are rendered, but without scripts they show the same text "
            "and metadata",
            remedy=f"add {names} to [triggers] exclude",
        )
