"""Known crawlers: those in crawlers.toml, and those in a file of the owner with the same format."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from prerender.config.crawler_classes import NAMED_CLASSES, CrawlerClass
from prerender.config.network_types import Endpoint
from prerender.config.types import crawler_name

_LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True)
class Crawler:
    """A crawler. ``name``: a word in its User-Agent, in any case; ``^`` anchors it at the beginning.

    ``domains``: of the host names of its addresses; ``ranges``: the URLs of the published lists of
    its addresses; ``signature_agent``: who signs its requests (Web Bot Auth). Empty if unknown.
    ``javascript``: it is known to run JavaScript.
    """

    name: str
    crawler: CrawlerClass
    operator: str = ""
    docs: str = ""
    domains: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    signature_agent: str = ""
    javascript: bool = False

    @property
    def label(self) -> str:
        """Its name without what is there only to find it."""
        return self.name.removeprefix("^").rstrip("/.0( ")


@dataclass(frozen=True, slots=True)
class Crawlers:
    """A list of crawlers. ``left_out``: names that are no crawlers, with the reasons."""

    date: date | None
    crawlers: tuple[Crawler, ...]
    left_out: Mapping[str, str]

    def changed_by(self, other: "Crawlers") -> "Crawlers":
        """This list, with the entries of another one, which take precedence."""
        replaced = {one.name.lower() for one in other.crawlers}
        replaced |= {name.lower() for name in other.left_out}
        unchanged = (one for one in self.crawlers if one.name.lower() not in replaced)
        return Crawlers(self.date, (*unchanged, *other.crawlers), self.left_out)

    def with_names(self, names: Iterable[tuple[CrawlerClass, str]]) -> "Crawlers":
        """This list, with further names."""
        more = tuple(Crawler(name, known) for known, name in names)
        return self.changed_by(Crawlers(None, more, {})) if more else self


def _domains(names: list[str]) -> list[str]:
    for name in names:
        if name != name.lower().strip(".") or "." not in name or not name.isascii():
            raise ValueError(f"{name!r} is not a domain, such as crawl.example.com")
    return names


class _Entry(BaseModel):
    """The keys of a crawler in a file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    operator: str = ""
    docs: Endpoint = ""
    domains: Annotated[list[str], AfterValidator(_domains)] = []
    ranges: list[Endpoint] = []
    signature_agent: Endpoint = ""
    javascript: bool = False


@cache
def built_in() -> Crawlers:
    """The crawlers in crawlers.toml."""
    return parse((files("prerender.crawlers") / "crawlers.toml").read_text(encoding="utf-8"))


def read(file: Path) -> Crawlers:
    """The crawlers in a file. Raises ValueError with a line for each problem, and OSError."""
    return parse(file.read_text(encoding="utf-8-sig"))


def parse(text: str) -> Crawlers:
    """The crawlers in TOML: a table for each class. Raises ValueError with a line for each problem."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not TOML: {error}") from error
    problems: list[str] = []
    crawlers: dict[str, Crawler] = {}
    made, left_out = content.pop("date", None), content.pop(_LEFT_OUT, {})
    if made is not None and type(made) is not date:
        problems.append(f"date: {made!r}: give a date, such as 2026-11-26")
    if not isinstance(left_out, dict) or not all(isinstance(why, str) for why in left_out.values()):
        problems.append(f'[{_LEFT_OUT}]: give names with reasons: ExampleBot = "no crawler"')
        left_out = {}
    for section, entries in content.items():
        known = next((one for one in NAMED_CLASSES if one == section), None)
        if known is None or not isinstance(entries, dict):
            problems.append(f"[{section}]: unknown class: give one of {', '.join(NAMED_CLASSES)}")
            continue
        for name, entry in entries.items():
            where = f"[{section}] {name}"
            if name.lower() in crawlers:
                problems.append(f"{where}: is also in [{crawlers[name.lower()].crawler}]")
            try:
                keys = _Entry.model_validate(entry).model_dump()
                keys |= {key: tuple(keys[key]) for key in ("domains", "ranges")}
                crawlers[name.lower()] = Crawler(name=crawler_name(name), crawler=known, **keys)
            except ValidationError as error:
                problems += [_problem(where, one) for one in error.errors(include_url=False)]
            except ValueError as error:
                problems.append(f"{where}: {error}")
    if problems:
        raise ValueError("\n".join(problems))
    return Crawlers(made, tuple(crawlers.values()), left_out)


def _problem(where: str, error: Mapping[str, object]) -> str:
    location, message = error["loc"], str(error["msg"]).removeprefix("Value error, ")
    if not isinstance(location, tuple) or not location:
        return f'{where}: give a table, for example {{ operator = "Example" }}'
    if error["type"] == "extra_forbidden":
        return f"{where}: {location[0]}: unknown key; known: {', '.join(_Entry.model_fields)}"
    return f"{where}: {location[0]}: {error['input']!r}: {message[:1].lower()}{message[1:]}"
