"""Retry-After: seconds or a date."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from prerender.http.retry_after import seconds_of


def test_retry_after() -> None:
    assert seconds_of("7") == 7
    assert seconds_of("999999999") == 3600
    assert seconds_of("Sun, 06 Nov 1994 08:49:37 GMT") == 0
    soon = seconds_of(format_datetime(datetime.now(UTC) + timedelta(minutes=50), usegmt=True))
    assert soon is not None
    assert 2000 < soon <= 3000
    for text in ("", "soon", "-1", "1.5", "Sun, 99 Nov 1994 08:49:37 GMT"):
        assert seconds_of(text) is None
