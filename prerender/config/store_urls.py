"""The URLs of stores: [cache] url. Each kind of store is declared in one place, with its schemes.

A module ``store_kinds`` of a package has KINDS (plugins.py finds it). What it needs is imported when a
store is opened, because settings are read by commands that open none.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from prerender import plugins


class Diagnosis(NamedTuple):
    """What ``prerender doctor`` says of a store; ``remedy`` is '' if it is ok."""

    state: Literal["ok", "warning", "problem"]
    text: str
    remedy: str = ""


class StoreKind:
    """A kind of store. ``forms``: examples of its URLs. ``may_have_redis``: in front, as hot_url."""

    schemes: tuple[str, ...]
    forms: tuple[str, ...]
    may_have_redis = False

    def accepts(self, url: SplitResult, options: Mapping[str, str]) -> bool:
        """Whether a URL with one of the schemes is valid. ``options``: of its query."""
        raise NotImplementedError

    async def open(self, settings: Any, namespace: str) -> Any:
        """The backing store of ``Settings``; None for memory alone. Raises ConfigError."""
        raise NotImplementedError

    async def diagnose(self, settings: Any, namespace: str) -> Diagnosis:
        """Whether the store works."""
        raise NotImplementedError


@cache
def kinds() -> tuple[StoreKind, ...]:
    """Those of the core, then those of extensions."""
    return tuple(kind for module in plugins.modules("store_kinds") for kind in module.KINDS)


def forms() -> str:
    """Examples of URLs of all kinds."""
    return _either([form for kind in kinds() for form in kind.forms])


def _either(examples: Sequence[str]) -> str:
    *most, last = [f'"{example}"' for example in examples]
    return f"{', '.join(most)} or {last}"


def kind_of(url: str) -> StoreKind | None:
    """The kind of store of a URL, by its scheme."""
    scheme = url.partition(":")[0]
    return next((kind for kind in kinds() if scheme in kind.schemes), None)


def checked(value: str) -> str:
    """The URL of a store. Raises ValueError."""
    if not is_valid(value):
        raise ValueError(f"give {forms()}; percent-encode special characters in a password")
    return value


def is_valid(value: str) -> bool:
    """Whether a store can have this URL."""
    kind = kind_of(value)
    try:
        url = urlsplit(value)
        strict = bool(url.query)
        options = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=strict))
        return (
            kind is not None
            and not url.fragment
            and value.isprintable()
            and " " not in value
            and kind.accepts(url, options)
        )
    except ValueError:
        return False


def redis_or_nothing(value: str) -> str:
    """The URL of a Redis, or ''. Raises ValueError."""
    if value:
        redis = next(kind for kind in kinds() if "redis" in kind.schemes)
        if kind_of(value) is not redis or not is_valid(value):
            raise ValueError(f"give a Redis, as for url: {_either(redis.forms)}")
    return value
