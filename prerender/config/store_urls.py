"""The URLs of stores: [cache] url. Each kind of store is declared in one place, with its schemes.

A module ``store_kinds`` of a package has KINDS (plugins.py finds it). What it needs is imported when a
store is opened, because settings are read by commands that open none.
"""

import re
from collections.abc import Mapping, Sequence, Set
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

    def problem(self, url: SplitResult, options: Mapping[str, str]) -> str:
        """What is wrong with a URL with one of the schemes, or ''. ``options``: of its query.

        It must not quote what may be a part of a password.
        """
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
    kind = kind_of(value)
    if kind is None:
        scheme = re.match(r"([a-z][a-z0-9+.-]*)://", value, re.ASCII)
        wrong = f'unknown scheme "{scheme[1]}"' if scheme else "not the URL of a store"
        raise ValueError(f"{wrong}: give {forms()}")
    if problem := _problem(kind, value):
        raise ValueError(problem)
    return value


def _problem(kind: StoreKind, value: str) -> str:
    if " " in value or not value.isprintable():
        return "must not contain spaces and control characters"
    try:
        url = urlsplit(value)
        strict = bool(url.query)
        options = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=strict))
        scheme = f"{url.scheme}://"
        problem = f"{scheme} takes no fragment (#)" if url.fragment else kind.problem(url, options)
    except ValueError:
        return "not a URL: percent-encode special characters in a password"
    if problem and "@" in url.path + url.query + url.fragment:
        # The password ends the host, so that a part of it would be quoted.
        return "percent-encode special characters in the password"
    return problem


def unknown_option(url: SplitResult, options: Mapping[str, str], known: Set[str]) -> str:
    """What is wrong with the options of a URL, or ''."""
    unknown = sorted(options.keys() - known)
    also = f", only {', '.join(sorted(known))}" if known else ""
    return f'{url.scheme}:// takes no option "{unknown[0]}"{also}' if unknown else ""


def redis_or_nothing(value: str) -> str:
    """The URL of a Redis, or ''. Raises ValueError."""
    redis = next(kind for kind in kinds() if "redis" in kind.schemes)
    if value and kind_of(value) is not redis:
        raise ValueError(f"give a Redis, as for url: {_either(redis.forms)}")
    return checked(value) if value else value
