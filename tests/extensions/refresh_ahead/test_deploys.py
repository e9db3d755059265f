"""A deploy is noticed by new assets, and what it replaced is renewed, the most requested first."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from prerender.extensions.refresh_ahead.deploys import Deploys
from prerender.extensions.refresh_ahead.popularity import Popularity
from prerender.snapshots.freshness import Freshness
from prerender.snapshots.target import Target
from tests.snapshots.test_freshness import PAGE, Site, asked_for
from tests.support.renders import freshness_of, target, until


class Deployed(Site):
    def __init__(
        self, freshness: Freshness, popular: Callable[[], Iterable[Target]] = tuple
    ) -> None:
        super().__init__(freshness)
        self.deploys = Deploys(self.cached, self.store, popular, self.clock)

    async def close(self) -> None:
        async with self.deploys.renewing():
            pass
        await self.cached.close()


async def test_a_deploy_makes_what_it_replaced_stale(caplog: pytest.LogCaptureFixture) -> None:
    site = Deployed(freshness_of(100.0, stale=50.0))
    site.renders.asset_fingerprint = "v1"
    await site.get()
    site.clock.now += 60
    other = target("/other")
    await site.cached.snapshot(other)
    site.renders.asset_fingerprint = "v2"
    site.clock.now += 60
    with caplog.at_level("INFO", "prerender.extensions.refresh_ahead.deploys"):
        await site.get()
        await site.refreshed(3)
    (detected,) = [record.msg for record in caplog.records if "deploy_detected" in str(record.msg)]
    assert isinstance(detected, dict)
    assert (detected["url"], detected["asset_fingerprint"]) == (PAGE.url, "v1")
    assert (await site.get()).how == "hit"
    # It would have been fresh for 40 seconds more.
    site.clock.now += 1
    answer = await site.cached.snapshot(other)
    assert answer.detail == "stale"
    await site.close()


async def test_what_is_asked_for_most_is_renewed_first_after_a_deploy() -> None:
    pages = [target(f"/{number}") for number in range(4)]
    popularity = Popularity()
    for asked, page in zip((2, 1, 4, 3), pages, strict=True):
        for _ in range(asked):
            popularity(asked_for(page))
    site = Deployed(freshness_of(100.0), popularity.most_first)
    site.renders.asset_fingerprint = "v1"
    for page in (PAGE, *pages):
        await site.cached.snapshot(page)
    await site.cached.snapshot(target("/never asked for again"))
    site.renders.asset_fingerprint = "v2"
    site.renders.rendered.clear()
    site.clock.now += 200
    await site.get()
    await until(lambda: len(site.renders.rendered) == 5)
    assert site.renders.rendered == [PAGE.path, "/2", "/3", "/0", "/1"]
    for page in pages:
        assert (await site.cached.snapshot(page)).how == "hit"
    await site.close()


async def test_a_renewal_goes_on_when_a_page_fails() -> None:
    pages = [target("/fails"), target("/works")]
    site = Deployed(freshness_of(100.0), lambda: pages)
    site.renders.asset_fingerprint = "v1"
    for page in (PAGE, *pages):
        await site.cached.snapshot(page)
    site.renders.asset_fingerprint = "v2"
    site.renders.fails.add("/fails")
    site.renders.rendered.clear()
    site.clock.now += 200
    await site.get()
    await until(lambda: "/works" in site.renders.rendered)
    await site.close()


async def test_the_end_of_a_renewal_leaves_the_render_to_those_who_wait() -> None:
    """Another page of the deploy starts the renewal anew, and the proxy may shut down."""
    waited_for = target("/renewed")

    def popular() -> list[Target]:
        site.renders.gate.clear()
        return [waited_for]

    site = Deployed(freshness_of(100.0), popular)
    site.renders.asset_fingerprint = "v1"
    for page in (PAGE, waited_for):
        await site.cached.snapshot(page)
    site.clock.now += 200
    site.renders.asset_fingerprint = "v2"
    async with asyncio.timeout(20):
        async with site.deploys.renewing():
            await site.cached.snapshot(PAGE)
            await until(lambda: site.renders.running)
            waiting = asyncio.create_task(site.cached.snapshot(waited_for))
            await until(lambda: site.cached._renders._running[waited_for.key].waiting)
        site.renders.gate.set()
        answer = await waiting
    assert (answer.how, answer.snapshot.asset_fingerprint) == ("coalesced", "v2")
    await site.close()


def test_rare_pages_are_forgotten_first() -> None:
    popularity = Popularity(most=10)
    for number in range(10):
        for _ in range(number + 1):
            popularity(asked_for(target(f"/{number}")))
    popularity(asked_for(target("/new")))
    assert [page.path for page in popularity.most_first()] == ["/9", "/8", "/7", "/6", "/5"]
