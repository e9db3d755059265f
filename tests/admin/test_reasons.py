"""Reasons for failed renders, in plain words."""

import pytest

from prerender.admin.reasons import in_words


@pytest.mark.parametrize(
    ("error", "reason", "expected"),
    [
        ("", "the page moved", "the page moved"),
        (
            "RenderTimeout",
            "https://example.com/#!/a:b: your site did not respond within 20 s",
            "Your site did not respond within 20 s",
        ),
        ("BrowserGone", "the browser died", "The browser died"),
        (
            "OriginError",
            "/a?b=1: connection refused",
            "No response from your site: connection refused",
        ),
        ("OriginTimeout", "GET localhost: timeout", "No response from your site: timeout"),
        ("KeyError", "", "An internal error, which is in the log"),
    ],
)
def test_reasons_are_in_words(error: str, reason: str, expected: str) -> None:
    assert in_words(error, reason) == expected
