"""Reasons for failed renders, in plain words."""

import pytest

from prerender.admin.reasons import in_words
from prerender.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "reason", "expected"),
    [
        (None, "the page moved", "the page moved"),
        (
            ErrorCode.RENDER_TIMEOUT,
            "your site did not respond within 20 s",
            "Your site did not respond within 20 s",
        ),
        (ErrorCode.BROWSER_GONE, "the browser died", "The browser died"),
        (
            ErrorCode.ORIGIN_ERROR,
            "connection refused",
            "No response from your site: connection refused",
        ),
        (ErrorCode.ORIGIN_TIMEOUT, "timeout", "No response from your site: timeout"),
        (ErrorCode.INTERNAL_ERROR, "", "An internal error, which is in the log"),
    ],
)
def test_reasons_are_in_words(error: ErrorCode | None, reason: str, expected: str) -> None:
    assert in_words(error, reason) == expected
