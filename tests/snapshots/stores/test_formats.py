"""Entries of other releases: shared if their format is the same, else ignored, removed and logged."""

import base64
import json
import sqlite3
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from prerender.config import Settings
from prerender.extensions.dashboard import history
from prerender.snapshots.entry import FORMAT, Entry, decode, encode
from prerender.snapshots.list_rows import Row
from prerender.snapshots.purges import Purge
from prerender.snapshots.snapshot import Facts, Snapshot
from prerender.snapshots.snapshot_lists import line_of
from prerender.snapshots.stores.file import FILE_NAME
from prerender.snapshots.stores.from_settings import namespace, open_store
from prerender.snapshots.variants import Variant
from tests.conftest import settings_for
from tests.support.redis_server import RedisServer
from tests.support.s3_server import S3Server

RECORDED_IN = Path(__file__).with_name("last_release.json")
SITE = "prerender:www.example.com:"


def settings(url: str, hot: str = "") -> Settings:
    cache = {"url": url, **({"hot_url": hot} if hot else {})}
    site = {"url": "https://www.example.com"}
    return settings_for("http://127.0.0.1:9", {"site": site, "cache": cache})


def entry(key: str = "0" * 32) -> Entry:
    now = time.time()
    snapshot = Snapshot(200, (), b"<p>x", '"x"', 1)
    return Entry(key, "/", snapshot, now, now + 100)


async def opened(settings: Settings) -> tuple[list[MutableMapping[str, Any]], Entry | None]:
    """What the log says when the store is opened, and whether the entry is there. It is, later."""
    with capture_logs() as logs:
        store = await open_store(settings)
    store.keep_lines(line_of)
    try:
        found = await store.get(entry().key)
        assert await store.set(entry(), 100)
    finally:
        await store.close()
    return [line for line in logs if line["event"] == "cache_format_changed"], found


async def used_by_another_release(settings: Settings, mark: Callable[[], object]) -> None:
    """Opening the store logs once that another release has used it since, and never otherwise."""
    assert await opened(settings) == ([], None)
    logs, found = await opened(settings)
    assert (logs, found is None) == ([], False)
    result = mark()
    if hasattr(result, "__await__"):
        await result
    logs, _ = await opened(settings)
    assert [(line["before"], line["now"]) for line in logs] == [("PRS3", FORMAT.decode())]
    logs, found = await opened(settings)
    assert (logs, found is None) == ([], False)


@pytest.mark.parametrize("statement", ["application_id = 0x50525333", "user_version = 1"])
async def test_a_file_of_another_release_is_emptied(tmp_path: Path, statement: str) -> None:
    of_file = settings(f"file://{tmp_path}")
    await opened(of_file)
    with sqlite3.connect(tmp_path / FILE_NAME) as file:
        file.execute(f"PRAGMA {statement}")
    file.close()
    logs, found = await opened(of_file)
    assert found is None
    assert len(logs) == 1
    logs, found = await opened(of_file)
    assert found is not None
    assert logs == []


async def test_a_file_of_the_last_release_is_used(tmp_path: Path) -> None:
    of_file = settings(f"file://{tmp_path}")
    await opened(of_file)
    with sqlite3.connect(tmp_path / FILE_NAME) as file:
        file.execute("PRAGMA application_id = 0")  # it did not set it
    file.close()
    logs, found = await opened(of_file)
    assert (logs, found is None) == ([], FORMAT != b"PRS4")


async def test_redis_and_a_release_with_another_format(redis: RedisServer) -> None:
    mark = lambda: redis.client.set(f"{SITE}format", b"PRS3")  # noqa: E731 (short)
    await used_by_another_release(settings(redis.url), mark)
    # What only lists snapshots does not outlast them.
    name = namespace(settings(redis.url))
    for key in (f"{name}lines", f"{name}until:{{{name}lines}}"):
        assert 0 < await redis.client.ttl(key) < 2 * 86400, await redis.client.keys()


@pytest.mark.ci_only
async def test_an_object_store_and_a_release_with_another_format(
    s3: S3Server, redis: RedisServer
) -> None:
    alone, behind_redis = settings(s3.url), settings(s3.url, redis.url)

    async def mark() -> None:
        store = await open_store(alone)
        assert store._slow is not None
        await store._slow.cache.set("format", b"PRS3", dumps_fn=bytes, namespace=SITE)
        await store.close()

    await used_by_another_release(alone, mark)
    await redis.client.set(f"{SITE}format", b"PRS3")
    assert len((await opened(behind_redis))[0]) == 1
    assert (await opened(behind_redis))[0] == []


# ---- the last release: python -m tests.snapshots.stores.test_formats prints what a release stores


RECORDED = json.loads(RECORDED_IN.read_text("utf-8"))


def recorded(name: str) -> bytes:
    return base64.b64decode(RECORDED[name])


SAMPLE = Entry(
    "0123456789abcdef0123456789abcdef",
    "/items/3?a=b#!x",
    Snapshot(
        200,
        (("X-Robots-Tag", "noarchive"),),
        "<title>Ä</title>".encode(),
        '"e"',
        784111777,
        facts=Facts(
            settled="quiet",
            virtual_seconds=1.5,
            text_length=7,
            failed_requests=("/a",),
            errors=("e",),
        ),
        ttl=60.0,
        tags=("news",),
        asset_fingerprint="f",
        encoded=(("gzip", b"\x1f\x8b"),),
    ),
    stored=1_700_000_000.5,
    expires=1_700_003_600.5,
    retry=1.0,
    refusals=2,
    generation=3,
    fence=4,
    variant=Variant("mobile", "de"),
)


HISTORY = history.History(
    SAMPLE.key,
    SAMPLE.path,
    history.RenderSummary(2.0, 0.5, facts=SAMPLE.snapshot.facts),
    (history.Version(1.0, 200, '"e"', 16, "Ä", "text"),),
)


def test_the_last_release_and_this_one_share_a_store_or_ignore_each_other() -> None:
    """If this fails, the format of entries has changed: change FORMAT in entry.py, too."""
    if FORMAT.decode() != RECORDED["format"]:
        assert namespace(settings("memory://")) != RECORDED["namespace"]
        return
    assert namespace(settings("memory://")) == RECORDED["namespace"]
    assert decode(recorded("entry")) == SAMPLE
    assert encode(SAMPLE) == recorded("entry")
    assert Row.of(SAMPLE, 1_800_000_000.0).dump() == recorded("line")
    assert Purge("prefix", "/items").dump() == recorded("purge")
    assert history.decode(recorded("history")) == HISTORY
    assert history.decode(history.encode(HISTORY)) == HISTORY


def recording() -> dict[str, str]:
    """What this release stores."""
    stored = {
        "entry": encode(SAMPLE),
        "line": Row.of(SAMPLE, 1_800_000_000.0).dump(),
        "purge": Purge("prefix", "/items").dump(),
        "history": history.encode(HISTORY),
    }
    return {
        "format": FORMAT.decode(),
        "namespace": namespace(settings("memory://")),
        **{name: base64.b64encode(data).decode() for name, data in stored.items()},
    }


if __name__ == "__main__":
    print(json.dumps(recording(), indent=2))
