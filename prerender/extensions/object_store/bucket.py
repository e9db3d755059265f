"""A bucket of an object store, by obstore: whole objects, read and written under a condition.

Credentials come from the environment, files and instance roles, as the provider's own tools find them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PreconditionError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from prerender.errors import StoreGone

_KINDS: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
# A request that fails is repeated once, and soon: who asks waits.
_RETRIES = 1
_FIRST_BACKOFF = timedelta(milliseconds=50)
_NO_RANGE = " 416 "
_LONGEST_BACKOFF = timedelta(milliseconds=200)


@dataclass(frozen=True, slots=True)
class Object:
    """The bytes of an object, or the first of them, and the ``version`` that they are of."""

    data: bytes
    version: dict[str, str]


class Bucket:
    """That at ``url`` (``s3://bucket/prefix``). A store that cannot be used raises StoreGone.

    Raises ValueError for options or credentials that cannot be.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        parts = urlsplit(url)
        seconds = timedelta(seconds=timeout_seconds)
        options: dict[str, Any] = dict(parse_qsl(parts.query))
        plain = options.get("endpoint", "").startswith("http:")
        client = {"timeout": seconds, "connect_timeout": seconds, "allow_http": plain}
        backoff = {"init_backoff": _FIRST_BACKOFF, "max_backoff": _LONGEST_BACKOFF}
        retries = {"max_retries": _RETRIES, "retry_timeout": seconds, "backoff": backoff}
        try:
            self._store = _KINDS[parts.scheme](
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                client_options=client,
                retry_config=retries,
                **options,
            )
        except BaseError as error:
            raise ValueError(_first_line(error)) from error

    async def read(self, name: str, most: int | None = None) -> Object | None:
        """An object, or its first ``most`` bytes; None if there is none."""
        if most is None:
            return await self._read(name, None)
        try:
            return await self._read(name, {"range": (0, most)})
        except StoreGone as error:
            if _NO_RANGE not in str(error):
                raise
            return await self._read(name, None)  # it is empty

    async def read_unless(
        self, name: str, version: dict[str, str]
    ) -> Object | Literal[False] | None:
        """An object; None if there is none, False if it is still of this version."""
        try:
            return await self._read(name, {"if_none_match": version["e_tag"]})
        except NotModifiedError:
            return False

    async def write(self, name: str, data: bytes, before: Object | None) -> bool:
        """Write an object if it still is what it was ``before``; whether that is so."""
        mode: Any = "create" if before is None else before.version
        try:
            await obstore.put_async(self._store, name, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except FileNotFoundError as error:
            if before is not None:
                return False  # it was deleted meanwhile
            raise StoreGone("the bucket does not exist") from error
        except BaseError as error:
            raise _gone(error) from error
        return True

    async def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        try:
            await obstore.delete_async(self._store, name)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise _gone(error) from error

    async def _read(self, name: str, options: Any) -> Object | None:
        try:
            response = await obstore.get_async(self._store, name, options=options)
            meta = response.meta
            data = bytes(await response.bytes_async())
        except FileNotFoundError:
            return None
        except NotModifiedError:
            raise
        except BaseError as error:
            raise _gone(error) from error
        version = {name: value for name, value in _version(meta) if value is not None}
        return Object(data, version)


def _version(meta: Any) -> Iterable[tuple[str, str | None]]:
    """By an entity-tag; Google Cloud Storage has a version for it."""
    return ((name, meta[name]) for name in ("e_tag", "version"))


def _gone(error: BaseError) -> StoreGone:
    return StoreGone(_first_line(error))


def _first_line(error: BaseError) -> str:
    """What follows in its text is for developers of the library."""
    return str(error).partition("\n")[0][:300] or type(error).__name__
