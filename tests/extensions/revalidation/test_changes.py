"""No change of any response that a page got stays unnoticed."""

import pytest

from tests.extensions.revalidation.changes import changed_one_by_one
from tests.sites.corpus import origin as corpus
from tests.sites.frameworks import origin as frameworks
from tests.sites.frameworks.routes import ROUTES


async def test_some_pages_of_frameworks() -> None:
    tally = await changed_one_by_one(
        frameworks.application(), ["/react18/birds/3", "/vue3/birds", "/angular/birds/4"]
    )
    assert tally.changes > 10
    assert not tally.stale
    assert not tally.lost


@pytest.mark.long
async def test_all_pages_of_frameworks() -> None:
    tally = await changed_one_by_one(frameworks.application(), [route.path for route in ROUTES])
    assert tally.changes > 300
    assert not tally.stale


@pytest.mark.long
async def test_all_pages_of_the_corpus() -> None:
    pages = [f"/{name}.html" for name in corpus.page_names()]
    tally = await changed_one_by_one(corpus.application(), pages)
    assert tally.changes > 180
    assert not tally.stale
