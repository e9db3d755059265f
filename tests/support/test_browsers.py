"""The shared browsers of tests: they are lent again, without anything of the last test."""

from aiohttp import web

from tests.conftest import StartOrigin, pages, settings_for
from tests.support.browsers import Browsers
from tests.support.renders import PUBLIC, target

SITE = {"site": {"url": str(PUBLIC)}}


async def test_one_after_the_other(start_origin: StartOrigin, browsers: Browsers) -> None:
    settings = settings_for((await pages(start_origin, {})).url, SITE)
    async with browsers.lend(settings) as first:
        pass
    async with browsers.lend(settings) as again, browsers.lend(settings) as beside:
        assert again.pool is first.pool
        assert beside.pool is not first.pool
    async with browsers.lend(settings) as one, browsers.lend(settings) as other:
        assert {one.pool, other.pool} == {again.pool, beside.pool}


async def test_what_was_fetched_is_forgotten(start_origin: StartOrigin, browsers: Browsers) -> None:
    kept = web.Response(
        text="", content_type="text/javascript", headers={"Cache-Control": "max-age=60"}
    )
    origin = await pages(start_origin, {"/": "<script src=/kept.js></script>a", "/kept.js": kept})
    for number in range(1, 3):
        async with browsers.lend(settings_for(origin.url, SITE)) as rendering:
            assert (await rendering.renderer.snapshot(target())).snapshot.status == 200
        assert origin.count("/kept.js") == number
        assert rendering.pool.browsers_started == 1
