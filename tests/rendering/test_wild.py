"""Snapshots of pages and servers as in the wild (tests/sites/wild), alone and eight at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conftest import Proxy, Reply, proxied
from tests.sites.wild.application import CASES, PUSHED, Case, application
from tests.support.plain_browser import plain_browser
from tests.support.readers import Reader

SETTINGS: dict[str, dict[str, object]] = {
    "site": {"url": "https://www.example.com"},
    "browser": {"pages": 3},
}
AT_ONCE = 8


def some_of_each_kind(first: int, every: int) -> list[Case]:
    kinds = {case.kind: [one for one in CASES if one.kind == case.kind] for case in CASES}
    return [case for cases in kinds.values() for case in cases[first::every]]


ALONE = some_of_each_kind(0, 14)
BESIDE_OTHERS = [case for case in some_of_each_kind(1, 14) if case.kind != PUSHED]


@pytest_asyncio.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with proxied(application(), SETTINGS) as proxy:
        yield proxy


@pytest_asyncio.fixture(scope="module")
async def reader(proxy: Proxy) -> AsyncIterator[Reader]:
    async with plain_browser("--window-size=1280,1024") as browser:
        yield Reader(browser, proxy.url)


async def problem(case: Case, reply: Reply, reader: Reader) -> str:
    if reply.status != case.status or "stored" not in reply.headers["Cache-Status"]:
        return f"{case.path}: {reply.status} {reply.headers.get('Cache-Status')}"
    if found := case.problem(reply.text, *await reader.read(reply.text)):
        return f"{case.path}: {found}"
    return ""


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(ALONE, id="some"),
        pytest.param(CASES, id="all", marks=pytest.mark.long),
    ],
)
async def test_alone(cases: list[Case], proxy: Proxy, reader: Reader) -> None:
    problems = [await problem(case, await proxy.crawl(case.path), reader) for case in cases]
    assert not any(problems), "\n".join(filter(None, problems))


@pytest.mark.ci_only
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(BESIDE_OTHERS, id="some"),
        pytest.param(
            [case for case in CASES if case.kind != PUSHED], id="all", marks=pytest.mark.long
        ),
    ],
)
async def test_eight_at_once(cases: list[Case], proxy: Proxy, reader: Reader) -> None:
    async with proxy.client.post(f"{proxy.admin_url}/api/v1/purge", json={"all": True}) as purged:
        assert purged.status == 200
    room = asyncio.Semaphore(AT_ONCE)

    async def crawled(case: Case) -> Reply:
        async with room:
            return await proxy.crawl(case.path)

    replies = await asyncio.gather(*map(crawled, cases))
    problems = [
        await problem(case, reply, reader) for case, reply in zip(cases, replies, strict=True)
    ]
    assert not any(problems), "\n".join(filter(None, problems))
