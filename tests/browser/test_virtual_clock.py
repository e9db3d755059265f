"""The virtual clock stands still, whatever budget it got while it ran out."""

import asyncio
import time

from prerender.browser.page import Page
from tests.support.pools import SECONDS, pool_of

# An ordinary page lets the browser's own timers run, which have days to go.
PAGE = "data:text/html,<p>A page<script>1</script>"


async def _after_its_budget(page: Page) -> None:
    await (await page._clock.start(100))
    await page._clock.advance()


async def _before_its_budget_ends(page: Page) -> None:
    """A busy page uses up its budget while it gets a new one."""
    await page._tab.session.call("Runtime.evaluate", expression="setInterval(() => {}, 1)")
    budget = await page._clock.start(1000)
    await page._clock.advance()
    await budget


async def _twice(page: Page) -> None:
    budget = await page._clock.start(100)
    await asyncio.gather(page._clock.advance(), page._clock.advance())
    await budget


async def _running_tasks_meanwhile(page: Page) -> None:
    """Also when the budget has just been used up."""
    clock = page._clock
    await page._tab.session.call("Runtime.evaluate", expression="setInterval(() => {}, 1)")
    for milliseconds in (1000, 10, 1):
        budget = await clock.start(milliseconds, wait_for_network=True)
        await asyncio.gather(*(clock.run_tasks() for _ in range(3)), clock.advance())
        await clock.run_tasks()
        await budget
        await clock.run_tasks()


async def _running_tasks_of_a_clock_that_is_ahead(page: Page) -> None:
    clock = page._clock
    clock.granted_seconds -= 1
    budget = await clock.start(100, wait_for_network=True)
    await clock.run_tasks()
    await budget


async def _running_tasks_of_a_clock_that_a_response_has_advanced(page: Page) -> None:
    """Its budget ends 10 ms later than that of the tasks, which takes few messages."""
    clock = page._clock
    await page._tab.session.call("Runtime.evaluate", expression="setInterval(() => {}, 1)")
    clock.granted_seconds -= 0.01
    before = page._tab.session._lastId
    budget = await clock.start(1000, wait_for_network=True)
    await clock.run_tasks()
    await budget
    assert page._tab.session._lastId - before < 100


_USES = (
    _after_its_budget,
    _before_its_budget_ends,
    _twice,
    _running_tasks_meanwhile,
    _running_tasks_of_a_clock_that_is_ahead,
    _running_tasks_of_a_clock_that_a_response_has_advanced,
)


async def test_the_clock_never_runs_free() -> None:
    async with pool_of(1) as pool:
        for use in _USES:
            async with (
                pool.place() as place,
                pool.page(place, SECONDS) as page,
                asyncio.timeout(SECONDS),
            ):
                page.broken = True  # afterwards: each use has a new page
                await page._tab.session.call("Page.navigate", url=PAGE)
                await use(page)
                dates = []
                # A clock that runs free passes a day in the time of some messages.
                for _ in range(50):
                    dates.append(await page._tab.session.evaluate("Date.now()"))
                assert abs(dates[-1] / 1000 - time.time()) < 2 * SECONDS, use.__name__
                assert len({date - dates[0] for date in dates}) == 1, use.__name__
