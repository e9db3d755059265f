"""A page that exhausts Chromium's limit on navigations does not affect the next one."""

import asyncio
import itertools
import time

import pytest

from tests.conftest import StartOrigin, StartProxy, pages
from tests.support.pools import state
from tests.support.sampling import sampled

GREEDY = {
    "pushState": "for (let i = 0; i < 300; i++) history.pushState(0, '', '#' + i)",
    "hash": "for (let i = 0; i < 300; i++) location.hash = i",
    "javascript URL": "for (let i = 0; i < 300; i++) location.href = 'javascript:void 0'",
    "history": "for (let i = 0; i < 300; i++) { history.forward(); history.go(3) }",
    "history while leaving": "onpagehide = () => { for (let i = 0; i < 300; i++) history.go(3) }",
}
# Renders of many virtual seconds, one after the other in the same tab.
OLD_TAB: dict[str, dict[str, object]] = {
    "browser": {"pages": 1},
    "site": {"url": "https://www.example.com"},
    "render": {"budget": "20s"},
}
NEXT = """<p id="out"></p><script>
  for (let i = 1; i <= 50; i++) history.replaceState(0, "", "/step/" + i);
  out.textContent = location.pathname;
</script>"""


# Of the ordinary ones, the first is waited for, and the last is not.
@pytest.mark.ci_only
@pytest.mark.parametrize("case", sampled([*itertools.product(GREEDY, [True, False])], 9))
async def test_the_next_page_has_its_own_allowance(
    start_origin: StartOrigin, start_proxy: StartProxy, case: tuple[str, bool]
) -> None:
    """Also if it waits for the page, and could get the same tab."""
    name, waiting = case
    origin = await pages(
        start_origin, {"/greedy": f"<p>x<script>{GREEDY[name]}</script>", "/": NEXT}
    )
    proxy = await start_proxy(
        origin.url, {"browser": {"pages": 1}, "site": {"url": "https://www.example.com"}}
    )
    for attempt in range(2):
        greedy = proxy.crawl(f"/greedy?{attempt}")
        following = proxy.crawl(f"/?{attempt}")
        if waiting:
            _, reply = await asyncio.gather(greedy, following)
        else:
            await greedy
            reply = await following
        assert ">/step/50<" in reply.text


@pytest.mark.ci_only
async def test_many_pages_with_a_few_navigations_each(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": NEXT})
    proxy = await start_proxy(
        origin.url, {"browser": {"pages": 1}, "site": {"url": "https://www.example.com"}}
    )
    # Chromium allows 200 in ten seconds.
    for number in range(5):
        assert ">/step/50<" in (await proxy.crawl(f"/?{number}")).text
    replies = await asyncio.gather(*(proxy.crawl(f"/?waiting={number}") for number in range(5)))
    assert all(">/step/50<" in reply.text for reply in replies)


@pytest.mark.ci_only
async def test_a_page_in_an_old_tab_has_the_same_allowance(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """In a tab that has been open for ten seconds, Chromium allows more changes than in a new one."""
    slow = "<p id=out></p><script>setTimeout(() => { out.textContent = 'slow' }, 12000)</script>"
    origin = await pages(start_origin, {"/slow": slow, "/": NEXT.replace("50", "300")})
    proxy = await start_proxy(origin.url, OLD_TAB)
    assert ">/step/200<" in (await proxy.crawl("/?alone")).text
    first, second = await asyncio.gather(proxy.crawl("/slow"), proxy.crawl("/?waiting"))
    assert ">slow<" in first.text
    assert ">/step/200<" in second.text


async def test_all_tabs_are_old(start_origin: StartOrigin, start_own_proxy: StartProxy) -> None:
    """After two of them, the page gets a new one."""
    origin = await pages(start_origin, {"/": NEXT.replace("50", "300")})
    proxy = await start_own_proxy(origin.url, OLD_TAB | {"browser": {"pages": 2}})
    pool = proxy.running.pool
    await state(pool, "2 idle, 0 busy, 0 waiting")
    assert pool._stock is not None
    for page in pool._stock.idle:
        page.tab._opened = time.monotonic() - 10, page.tab._opened[1]
    reply = await proxy.crawl("/")
    assert (reply.status, ">/step/200<" in reply.text) == (200, True)


@pytest.mark.parametrize("changes", sampled([(150, 150), (300, 0), (1, 300)], 3))
async def test_a_page_whose_tab_becomes_old_has_the_same_allowance(
    start_origin: StartOrigin, start_proxy: StartProxy, changes: tuple[int, int]
) -> None:
    """Its tab has been open for ten seconds only when the page ends. ``changes``: early and late."""
    early, late = changes
    first = """<p id=out></p><script>
      for (let i = 1; i <= 10; i++) history.replaceState(0, "", "#" + i);
      setTimeout(() => { out.textContent = "first" }, 8000);
    </script>"""
    storm = f"""<p id="out"></p><script>
      let step = 0;
      const change = (times) => {{
        while (times--) history.replaceState(0, "", "/step/" + ++step);
      }};
      change({early});
      setTimeout(() => {{ change({late}); out.textContent = location.pathname; }}, 3000);
    </script>"""
    origin = await pages(start_origin, {"/first": first, "/": storm})
    proxy = await start_proxy(origin.url, OLD_TAB)
    before, reply = await asyncio.gather(proxy.crawl("/first"), proxy.crawl("/?waiting"))
    assert ">first<" in before.text
    assert ">/step/200<" in reply.text
