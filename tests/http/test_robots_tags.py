"""Which robots directives keep a page out of the index."""

import pytest

from prerender.http.robots_tags import is_noindex


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["noindex"], True),
        (["index, follow", "NoIndex,nofollow"], True),
        (["none"], True),
        (["googlebot: nofollow, noindex"], True),
        (["otherbot: nofollow, googlebot: noindex"], True),
        (["unavailable_after: Friday, 25-Jun-30 15:00:00 UTC, noindex"], True),
        ([], False),
        ([""], False),
        (["index, max-image-preview:none"], False),
        (["max-snippet: -1, max-image-preview: none"], False),
        (["otherbot: noindex, nofollow"], False),
        (["googlebot: nofollow, otherbot: noindex"], False),
        (["noindexed"], False),
    ],
)
def test_noindex(values: list[str], expected: bool) -> None:
    assert is_noindex(values) is expected
