"""The memory of lists and caches with texts of clients."""

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

import pytest
from cachetools import LRUCache

from prerender.http import fields
from prerender.telemetry import remembered
from prerender.telemetry.remembered import Remembered, size_bytes
from tests.conftest import StartOrigin, StartProxy, pages
from tests.telemetry.test_metrics import samples

TEXT = 1000


@pytest.fixture(autouse=True)
def measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "FIRST_SECONDS", 0.0)


@dataclass(slots=True)
class Record:
    """A record with a text."""

    text: str


class Holder:
    """Holds texts in different containers, and something that is not its own."""

    def __init__(self, count: int) -> None:
        self.records = deque(Record(_text(number)) for number in range(count))
        self.cache: LRUCache[str, str] = LRUCache(10 * count)
        for number in range(count):
            self.cache[_text(count + number)] = ""
        self.function = size_bytes
        self.module = fields


def _text(number: int) -> str:
    return str(number).rjust(TEXT)


def test_texts_are_counted_once_with_their_containers() -> None:
    for count in (100, 1000):
        holder = Holder(count)
        assert 2 * count * TEXT < size_bytes(holder) < 2 * count * (TEXT + 500) + 10_000
        shared = holder.records[0].text
        before = size_bytes(holder)
        holder.records.extend(Record(shared) for _ in range(10))
        assert size_bytes(holder) < before + TEXT


def test_keys_and_values_of_an_lru_cache_are_counted() -> None:
    twice = lru_cache(maxsize=10)(lambda text: text + text)
    for number in range(100):
        twice(_text(number))
    assert 10 * 3 * TEXT < size_bytes(twice) < 10 * 3 * TEXT + 10_000


async def test_each_list_of_a_proxy_is_measured(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": "<p>x"})
    proxy = await start_proxy(origin.url)
    async with asyncio.timeout(10):
        while not (found := await samples(proxy)).value("prerender_remembered_bytes"):
            await asyncio.sleep(0.02)
    names = {
        sample.labels["of"]
        for family in found.families.values()
        for sample in family.samples
        if sample.name == "prerender_remembered_bytes"
    }
    assert {"recent_requests", "popularity", "hanging_requests", "screenshots"} < names
    assert {"http.message_head", "proxy.decision", "proxy.decider", "telemetry.access_log"} < names
    assert {"http.client_address", "http.forwarding_headers", "crawlers.user_agents"} < names


async def test_a_measurement_is_renewed() -> None:
    holder = Holder(1)
    measured = Remembered({"holder": holder}, every_seconds=0.01)
    async with measured.measuring():
        before = await _size_above(measured, 0)
        holder.records.append(Record(_text(5)))
        assert await _size_above(measured, before) >= before + TEXT


async def _size_above(measured: Remembered, size: float) -> float:
    async with asyncio.timeout(10):
        while True:
            for metric in measured.collect():
                for sample in metric.samples:
                    if sample.labels["of"] == "holder" and sample.value > size:
                        return sample.value
            await asyncio.sleep(0.01)
