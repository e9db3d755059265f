"""aiocache's serializer of entries."""

from typing import Any

import structlog
from aiocache.serializers import BaseSerializer

from prerender.errors import BadEntry
from prerender.snapshots.entry import Entry, decode, encode

log = structlog.get_logger(__name__)


class EncodedEntry(bytes):
    """The bytes of an ``entry``, for a store that keeps more of it than its bytes."""

    entry: Entry


class EntrySerializer(BaseSerializer):  # type: ignore[misc]
    """Entries as bytes. What is read and cannot be an entry is None, like what is not there."""

    DEFAULT_ENCODING = None

    def __init__(self) -> None:
        super().__init__()
        self.bad_entries = 0
        self._last_bad: object = None

    def dumps(self, value: Entry) -> EncodedEntry:
        """The bytes of an entry."""
        encoded = EncodedEntry(encode(value))
        encoded.entry = value
        return encoded

    def loads(self, value: Any) -> Entry | None:
        """The entry that was made into these bytes, None for all else."""
        if value is None:
            return None
        try:
            return decode(value)
        except BadEntry as error:
            self.refuse(bytes(value[:64]), str(error))
            return None

    def refuse(self, mark: object, reason: str) -> None:
        """Count an entry that must not be shown; once if the same ``mark`` is read again."""
        if mark != self._last_bad:
            self._last_bad = mark
            self.bad_entries += 1
            log.warning("bad_store_entry", reason=reason)
