"""Clients that look automated and are not in the list of crawlers.

They are told by their User-Agent: by words that only programs use there, or because all who send it
read pages without a language and without any of their files. Addresses are not looked at. They are
those of this process, and of the ones before if there is a store.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from cachetools import LRUCache
from pydantic import TypeAdapter

from prerender.background import repeating
from prerender.crawlers.known import Crawler
from prerender.crawlers.triggers import may_be_page
from prerender.crawlers.user_agents import UserAgents
from prerender.errors import StoreError
from prerender.extensions.dashboard.crawlers import RequestOutcome, got
from prerender.snapshots.stores.notes import Notes
from prerender.telemetry.records import RequestRecord

# Each User-Agent and each name is a few hundred bytes.
MOST_NAMES = 500
_MOST_USER_AGENTS = 2000
_LONGEST = 300
_LONGEST_NAME = 40
_BATCH = 128
# So many pages without a file are no reader's.
LEAST_PAGES = 20
_ROBOTS = "/robots.txt"
_KEY = "unknown-bots"
_EVERY_SECONDS = 60.0
_LAST_SECONDS = 3.0
_RETENTION_SECONDS = 30 * 86400.0

_PROGRAM = re.compile(
    r"""(?<!cu)bot(?![a-z]{3}) | crawl | spider | scrap | slurp | fetch | headless | phantom | selenium
    | puppeteer | playwright | monitor | uptime | preview | validator | archiver | https?:// | feed
    | rss | python | \bcurl\b | \bwget\b | libwww | \bjava/ | okhttp | go-http | http-?client | axios
    | node-fetch | undici | \bruby\b | \bphp\b | guzzle | aiohttp | httpx | scan""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_COMPATIBLE = re.compile(r"\bcompatible; ?(?!MSIE)([\w.!-][\w.! -]*)", re.ASCII)
_PRODUCT = re.compile(r"[\w.!-]{3,}(?=/)", re.ASCII)
_BROWSERS = frozenset(
    (
        "mozilla", "applewebkit", "chrome", "safari", "gecko", "mobile", "version", "firefox", "edg",
        "opr", "trident", "presto",
    )
)  # fmt: skip

Why = Literal["name", "behavior"]


class _ClientName(NamedTuple):
    """What a User-Agent tells. ``name``: a word to find it by, "" if there is none."""

    name: str
    program: bool


@dataclass(slots=True)
class Bot:
    """An unknown bot, or a User-Agent that may be one.

    ``why``: its name says so, or its requests. ``pages`` and ``files``: requested ones; ``robots``:
    requests for robots.txt; ``languages``: requests with Accept-Language; ``missing``: 4xx; ``last``:
    Unix seconds.
    """

    name: str
    user_agent: str
    why: Why
    pages: int = 0
    files: int = 0
    robots: int = 0
    languages: int = 0
    got: Counter[RequestOutcome] = field(default_factory=Counter)
    missing: int = 0
    last: float = 0.0

    @property
    def is_listed(self) -> bool:
        """Whether that is enough to call it a bot."""
        return self.why == "name" or self.pages >= LEAST_PAGES

    @property
    def is_browser(self) -> bool:
        """Whether people send its User-Agent."""
        return self.why == "behavior" and bool(self.files or self.languages)

    def add(self, earlier: "Bot") -> None:
        """Add what it did before this process."""
        for name in ("pages", "files", "robots", "languages", "missing"):
            setattr(self, name, getattr(self, name) + getattr(earlier, name))
        self.got.update(earlier.got)

    def count(self, records: list[RequestRecord]) -> None:
        """Count requests, in their order."""
        self.last = records[-1].time
        for record in records:
            self.languages += record.accept_language
            if record.target == _ROBOTS:
                self.robots += 1
            elif may_be_page(record.target):
                self.pages += 1
            else:
                self.files += 1
            self.missing += 400 <= record.status < 500
        self.got.update(map(got, records))


class Bots:
    """Subscribes to the records of requests, and counts them in batches. ``since``: since when, in Unix
    seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.since = clock()
        self._clock = clock
        self._is_changed = False
        self._is_loaded = False
        self._new: list[RequestRecord] = []
        self._client_of = lru_cache(maxsize=1024)(client_of)
        self._by_name: LRUCache[str, Bot] = LRUCache(MOST_NAMES)
        self._by_user_agent: LRUCache[str, Bot] = LRUCache(_MOST_USER_AGENTS)
        # Of people, whose requests cost no more than a look into this set.
        self._browsers: set[str] = set()

    def __call__(self, record: RequestRecord) -> None:
        """Count a request of an unknown client. Called for every request; most are of browsers."""
        if record.crawler is None and record.user_agent not in self._browsers:
            self._new.append(record)
            if len(self._new) >= _BATCH:
                self._count_new()

    @asynccontextmanager
    async def storing(self, notes: Notes) -> AsyncIterator[None]:
        """Take over the bots of the process before, and write them while the context is open."""
        with suppress(StoreError):
            await self._load_once(notes)
        write = partial(self._write, notes)
        async with repeating(write, "unknown bots", _EVERY_SECONDS, _LAST_SECONDS):
            yield

    async def _write(self, notes: Notes) -> None:
        # A note that could not be read must not be replaced.
        await self._load_once(notes)
        bots = self.most_first()
        if self._is_changed:
            self._is_changed = False
            await notes.set(_KEY, _NOTE.dump_json((self.since, bots)), _RETENTION_SECONDS)

    async def _load_once(self, notes: Notes) -> None:
        if not self._is_loaded:
            self._load(await notes.read(_KEY))
            self._is_loaded = True

    def _load(self, note: bytes | None) -> None:
        try:
            since, bots = _NOTE.validate_json(note) if note else (self.since, [])
        except ValueError:
            return
        self.since = min(since, self.since)
        for bot in reversed(bots):
            if bot.last > self._clock() - _RETENTION_SECONDS:
                place, key = self._place(_ClientName(bot.name, bot.why == "name"), bot.user_agent)
                if known := place.get(key):
                    known.add(bot)
                else:
                    place[key] = bot

    def most_first(self) -> list[Bot]:
        """The unknown bots, those with most requests first."""
        self._count_new()
        seen = (*self._by_name.values(), *self._by_user_agent.values())
        bots = [bot for bot in seen if bot.is_listed]
        return sorted(bots, key=lambda bot: (-bot.got.total(), bot.name, bot.user_agent))

    def _count_new(self) -> None:
        groups: defaultdict[str, list[RequestRecord]] = defaultdict(list)
        for record in self._new:
            groups[record.user_agent[:_LONGEST]].append(record)
        self._is_changed |= bool(self._new)
        self._new.clear()
        for user_agent, records in groups.items():
            client = self._client_of(user_agent)
            bots, key = self._place(client, user_agent)
            bot = bots.get(key)
            if bot is None:
                why: Why = "name" if client.program else "behavior"
                bot = bots[key] = Bot(client.name, user_agent, why)
            bot.count(records)
            if bot.is_browser:
                del bots[key]
                if len(self._browsers) >= _MOST_USER_AGENTS:
                    self._browsers.clear()
                self._browsers.add(user_agent)

    def _place(self, client: _ClientName, user_agent: str) -> tuple[LRUCache[str, Bot], str]:
        """Where a bot is, and under which key."""
        if client.program:
            return self._by_name, client.name.lower() or user_agent
        return self._by_user_agent, user_agent


_NOTE = TypeAdapter(tuple[float, list[Bot]])


def client_of(user_agent: str) -> _ClientName:
    """What a User-Agent tells about its client. Pure."""
    program = not user_agent or bool(_PROGRAM.search(user_agent))
    products = [one for one in _PRODUCT.findall(user_agent) if one.lower() not in _BROWSERS]
    inside = _COMPATIBLE.search(user_agent)
    names = [inside[1].strip()] if inside else []
    names += [one for one in products if _PROGRAM.search(one)]
    if not user_agent.startswith(("Mozilla/", "Opera/", "Dalvik/")):
        names += [*products, user_agent.partition(" ")[0]]
    for name in names:
        crawler = Crawler(name[:_LONGEST_NAME], "search")
        # Shorter ones would match browsers.
        if len(name) >= 3 and UserAgents([crawler]).crawlers_of(user_agent):
            return _ClientName(crawler.name, program)
    return _ClientName("", program)
