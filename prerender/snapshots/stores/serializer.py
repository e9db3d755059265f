"""The aiocache serializer of entries."""

from enum import Enum
from typing import Any, Final

import structlog
from aiocache.serializers import BaseSerializer

from prerender.errors import BadEntry
from prerender.snapshots.entry import Entry, decode, encode

log = structlog.get_logger(__name__)


class Unread(Enum):
    """In place of an entry that could not be read, although others of the same call could."""

    UNREAD = "unread"


UNREAD: Final = Unread.UNREAD


class EncodedEntry(bytes):
    """The bytes of an ``entry``, with the entry for stores that need its fields."""

    entry: Entry


class EntrySerializer(BaseSerializer):  # type: ignore[misc]
    """Serializes entries. Invalid bytes are loaded as None, like missing ones."""

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

    def loads(self, value: Any) -> Entry | Unread | None:
        """Decode an entry; None if it is invalid."""
        if value is None or value is UNREAD:
            return value
        try:
            return decode(value)
        except BadEntry as error:
            self.refuse(bytes(value[:64]), str(error))
            return None

    def refuse(self, mark: object, reason: str) -> None:
        """Count an invalid entry, once per ``mark``."""
        if mark != self._last_bad:
            self._last_bad = mark
            self.bad_entries += 1
            log.warning("bad_store_entry", reason=reason)
