"""What the report says about a stored snapshot."""

import pytest

from prerender.snapshots.snapshot import Snapshot, etag_of
from prerender.visits.recorder import facts_of


@pytest.mark.parametrize(
    ("canonical", "url", "foreign"),
    [
        ("https://www.example.com", "https://www.example.com/", ""),
        ("https://www.example.com/#!/a%20b", "https://www.example.com/#!/a b", ""),
        ("/a", "https://www.example.com/a", ""),
        ("http://www.example.com/a", "https://www.example.com/a", "http://www.example.com/a"),
        ("/a", "https://www.example.com/a?page=2", "https://www.example.com/a"),
        ("", "https://www.example.com/a", ""),
    ],
)
def test_foreign_canonicals(canonical: str, url: str, foreign: str) -> None:
    body = f'<link rel="canonical" href="{canonical}">text'.encode()
    snapshot = Snapshot(200, (), body, etag_of(200, (), body), 0)
    assert facts_of(snapshot, url) == (0, foreign, 4)
