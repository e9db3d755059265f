"""Every change of an input is noticed, and nothing else is taken for one."""

from prerender.extensions.revalidation.eligibility import Reason
from prerender.extensions.revalidation.manifest import decode
from tests.extensions.revalidation.asking import asking
from tests.extensions.revalidation.site import INPUTS, Site


async def test_every_change_of_an_input_is_noticed() -> None:
    site = Site()
    async with asking(site.application()) as asker:
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


async def test_headers_that_always_differ_are_ignored_after_a_check() -> None:
    site = Site()

    async with asking(site.application()) as asker:
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


async def test_what_no_request_shows_is_found_by_checks() -> None:
    site = Site()
    async with asking(site.application()) as asker:
        for page, reason in (
            ("/by-chance", Reason.WRONG),
            ("/by-chance?requests", Reason.REQUESTS),
        ):
            kept = await asker.render(page)
            found = await asker.ask(kept)
            assert found.result == "same"
            kept = await asker.check(kept, type(found)("check"))
            assert kept.renewals is not None
            assert kept.renewals.why == reason
            again = await asker.ask(kept)
            assert (again.result, again.reason) == ("untried", reason)
