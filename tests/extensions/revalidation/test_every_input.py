"""Every change of an input is noticed, and nothing else is taken for one."""

import pytest

from prerender.extensions.revalidation import revalidator
from prerender.extensions.revalidation.eligibility import UnrenewableReason
from prerender.extensions.revalidation.manifest import Fingerprint, Input, decode
from prerender.snapshots.renewals import RevalidationResult
from tests.conftest import StartOrigin
from tests.extensions.revalidation.asking import TRUSTED, asking
from tests.extensions.revalidation.site import INPUTS, Site
from tests.support.browsers import Browsers


@pytest.mark.ci_only
async def test_every_change_of_an_input_is_noticed_and_says_nothing_about_renewals(
    start_origin: StartOrigin, browsers: Browsers
) -> None:
    site = Site()
    async with asking(await start_origin(site.application()), browsers) as asker:
        kept = await asker.render("/page")
        assert not kept.snapshot.unrenewable
        assert all(
            site.text(name).encode() in kept.snapshot.body
            for name in INPUTS
            if name not in ("picture", "redirect", "set-cookie")
        )
        assert (await asker.ask(kept)).result == "same"
        other = await asker.render("/page?2")
        names = {decode(one.snapshot.manifest).assets_name for one in (kept, other)}
        assert len(names) == 1
        assert "" not in names
        for name in INPUTS:
            site.versions[name] += 1
            found = await asker.ask(kept)
            assert found.result in ("changed", "headers"), (name, found)
            site.versions[name] -= 1
            assert (await asker.ask(kept)).result == "same", name
        # A check of a page that has changed.
        site.versions["plain"] += 1
        kept = await asker.check(kept, RevalidationResult("check"))
        assert kept.renewals is not None
        assert (kept.renewals.confirmed, kept.renewals.why) == (TRUSTED, "")
        # Another style sheet, with which the page looks the same to a crawler.
        site.versions["comment"] += 1
        kept = await asker.check(kept, RevalidationResult("check"))
        assert kept.renewals is not None
        assert (kept.renewals.confirmed, kept.renewals.futile) == (TRUSTED, 1)
        assert sum(asker.revalidator.checks.values()) == 0


@pytest.mark.ci_only
async def test_pages_share_what_does_not_vary_by_the_page(
    monkeypatch: pytest.MonkeyPatch, start_origin: StartOrigin, browsers: Browsers
) -> None:
    monkeypatch.setattr(revalidator, "_SHARED_SECONDS", 60.0)
    site = Site()
    async with asking(await start_origin(site.application()), browsers) as asker:
        pages = [await asker.render(f"/page?{number}") for number in range(2)]
        site.asked.clear()
        assert (await asker.ask(pages[0])).result == "same"
        assert {(await asker.ask_soon(page)).result for page in pages[1:]} == {"same"}
        assert site.asked["/page"] == len(pages)
        assert site.asked["/data/sync"] == len(pages)
        assert site.asked["/data/plain"] == 1
        site.versions["plain"] += 1
        found = [await asker.ask(pages[0]), await asker.ask_soon(pages[1])]
        assert [one.result for one in found] == ["changed", "changed"]


@pytest.mark.parametrize(
    ("vary", "varies"),
    [("Origin", False), ("Accept, Referer", True), ("*", True), ("", True)],
    ids=["other", "referer", "any", "ignored"],
)
def test_a_response_varies_by_the_page(vary: str, varies: bool) -> None:
    fingerprint = Fingerprint(200, "", (("vary", vary),))
    assert Input("GET", "/data", (), "", fingerprint).varies_by_page is varies


@pytest.mark.ci_only
async def test_headers_that_always_differ_are_ignored_after_a_check(
    start_origin: StartOrigin, browsers: Browsers
) -> None:
    site = Site()

    async with asking(await start_origin(site.application()), browsers) as asker:
        site.numbered = True
        kept = await asker.render("/page")
        found = await asker.ask(kept)
        assert found.result == "headers"
        kept = await asker.check(kept, found)
        assert kept.renewals is not None
        assert kept.renewals.confirmed == 7
        assert (await asker.ask(kept)).result == "same"
        for name in ("header", "set-cookie", "plain"):
            site.versions[name] += 1
            assert (await asker.ask(kept)).result != "same", name
            site.versions[name] -= 1
        # It stays ignored when the content changes.
        site.versions["plain"] += 1
        kept = await asker.check(kept, await asker.ask(kept))
        assert (await asker.ask(kept)).result == "same"


async def test_what_no_request_shows_is_found_by_checks(
    start_origin: StartOrigin, browsers: Browsers
) -> None:
    site = Site()
    async with asking(await start_origin(site.application()), browsers) as asker:
        for page, reason in (
            ("/by-chance", UnrenewableReason.WRONG),
            ("/by-chance?requests", UnrenewableReason.REQUESTS),
        ):
            kept = await asker.render(page)
            found = await asker.ask(kept)
            assert found.result == "same"
            kept = await asker.check(kept, RevalidationResult("check"))
            assert kept.renewals is not None
            assert kept.renewals.why == reason
            again = await asker.ask(kept)
            assert (again.result, again.reason) == ("untried", reason)
