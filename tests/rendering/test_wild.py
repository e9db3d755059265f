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
# Each case is rendered alone or beside others; the long tests render each in both ways.
BESIDE_OTHERS = [case for case in CASES if case.kind != PUSHED][1::2]


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
        pytest.param([case for case in CASES if case not in BESIDE_OTHERS], id="half"),
        pytest.param(BESIDE_OTHERS, id="others", marks=pytest.mark.long),
    ],
)
async def test_alone(cases: list[Case], proxy: Proxy, reader: Reader) -> None:
    problems = [await problem(case, await proxy.crawl(case.path), reader) for case in cases]
    assert not any(problems), "\n".join(filter(None, problems))


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(BESIDE_OTHERS, id="half"),
        pytest.param(
            [case for case in CASES if case.kind != PUSHED], id="all", marks=pytest.mark.long
        ),
    ],
)
async def test_eight_at_once(cases: list[Case], reader: Reader) -> None:
    async with proxied(application(), SETTINGS) as other:
        room = asyncio.Semaphore(AT_ONCE)

        async def crawled(case: Case) -> Reply:
            async with room:
                return await other.crawl(case.path)

        replies = await asyncio.gather(*map(crawled, cases))
    problems = [
        await problem(case, reply, reader) for case, reply in zip(cases, replies, strict=True)
    ]
    assert not any(problems), "\n".join(filter(None, problems))
