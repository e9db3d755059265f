"""No change of any response that a page got stays unnoticed."""

import pytest

from tests.conftest import StartOrigin
from tests.extensions.revalidation.changes import changed_one_by_one
from tests.sites.corpus import origin as corpus
from tests.sites.frameworks import origin as frameworks
from tests.sites.frameworks.routes import ROUTES
from tests.support.browsers import Browsers


async def test_some_pages_of_frameworks(start_origin: StartOrigin, browsers: Browsers) -> None:
    tally = await changed_one_by_one(
        frameworks.application(),
        ["/vue3/birds", "/angular/birds/4"],
        start_origin,
        browsers,
    )
    assert tally.changes > 10
    assert not tally.stale
    assert not tally.lost


@pytest.mark.long
async def test_all_pages_of_frameworks(start_origin: StartOrigin, browsers: Browsers) -> None:
    tally = await changed_one_by_one(
        frameworks.application(), [route.path for route in ROUTES], start_origin, browsers
    )
    assert tally.changes > 300
    assert not tally.stale


@pytest.mark.long
async def test_all_pages_of_the_corpus(start_origin: StartOrigin, browsers: Browsers) -> None:
    pages = [f"/{name}.html" for name in corpus.page_names()]
    tally = await changed_one_by_one(corpus.application(), pages, start_origin, browsers)
    assert tally.changes > 180
    assert not tally.stale
