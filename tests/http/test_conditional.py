"""Conditional requests and HTTP dates: tables from the RFC, and properties."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from prerender.http.conditional import (
    ConditionalResult,
    evaluate,
    format_http_date,
    parse_http_date,
)

SEND, NOT_MODIFIED, PRECONDITION_FAILED = ConditionalResult

MODIFIED = "Sun, 06 Nov 1994 08:49:37 GMT"
MODIFIED_SECONDS = 784111777
BEFORE = "Sun, 06 Nov 1994 08:49:36 GMT"
AFTER = "Sun, 06 Nov 1994 08:49:38 GMT"
END_OF_9999 = 253402300799
NOW = 1_763_700_000  # 21 November 2025

Lines = list[tuple[str, str]]


def outcome(
    lines: Lines,
    *,
    method: str = "GET",
    etag: str = '"current"',
    last_modified: int = MODIFIED_SECONDS,
) -> ConditionalResult:
    headers = CIMultiDictProxy(CIMultiDict([("Host", "site"), *lines]))
    return evaluate(method, headers, etag=etag, last_modified=last_modified, now=NOW)


def test_without_conditions_the_snapshot_is_sent() -> None:
    assert outcome([]) is SEND
    assert [*ConditionalResult] == [200, 304, 412]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param('"current"', NOT_MODIFIED, id="the same"),
        pytest.param('W/"current"', NOT_MODIFIED, id="weak"),
        pytest.param('"no", "current"', NOT_MODIFIED, id="in a list"),
        pytest.param('"no"\t ,W/"current" \t,"more"', NOT_MODIFIED, id="white space"),
        pytest.param("*", NOT_MODIFIED, id="star"),
        pytest.param('"no"', SEND, id="another"),
        pytest.param('"Current"', SEND, id="case"),
        pytest.param('"curren", "t", "currentt"', SEND, id="no substring"),
        pytest.param('"no",,"current"', NOT_MODIFIED, id="empty member"),
        pytest.param(',"current"', NOT_MODIFIED, id="first"),
        pytest.param(' , ,\t"current" , ,', NOT_MODIFIED, id="many"),
        pytest.param("current", SEND, id="unquoted"),
        pytest.param('w/"current"', SEND, id="small w"),
        pytest.param('W/ "current"', SEND, id="space after W/"),
        pytest.param('W"current"', SEND, id="no slash"),
        pytest.param('W/W/"current"', SEND, id="twice W/"),
        pytest.param('"current', SEND, id="no end"),
        pytest.param('current"', SEND, id="no beginning"),
        pytest.param("'current'", SEND, id="other quotes"),
        pytest.param('"current"x', SEND, id="rest"),
        pytest.param('x"current"', SEND, id="something before"),
        pytest.param('"no" "current"', SEND, id="no comma"),
        pytest.param('"no";"current"', SEND, id="semicolon"),
        pytest.param('""current""', SEND, id="twice quoted"),
        pytest.param('"\\"current"', SEND, id="a backslash escapes nothing"),
        pytest.param('*, "no"', SEND, id="star in a list"),
        pytest.param("*,", SEND, id="star and an empty member"),
        pytest.param("**", SEND, id="two stars"),
        pytest.param('"*"', SEND, id="quoted star"),
        pytest.param("", SEND, id="empty"),
        pytest.param(",", SEND, id="empty members"),
        pytest.param('no, "x, *, "current"', NOT_MODIFIED, id="valid after malformed members"),
    ],
)
@pytest.mark.parametrize("since", [BEFORE, AFTER])
def test_if_none_match(value: str, expected: ConditionalResult, since: str) -> None:
    """A date in the same request is ignored, whether the tags are valid or not."""
    assert outcome([("If-None-Match", value)]) is expected
    assert outcome([("If-None-Match", value), ("If-Modified-Since", since)]) is expected


@pytest.mark.parametrize(
    ("etag", "value", "expected"),
    [
        pytest.param('W/"x"', '"x"', NOT_MODIFIED, id="stored weak"),
        pytest.param('W/"x"', 'W/"x"', NOT_MODIFIED, id="both weak"),
        pytest.param('"a,b"', '"a,b"', NOT_MODIFIED, id="comma in a tag"),
        pytest.param('"a,b"', '"no","a,b","more"', NOT_MODIFIED, id="in a list"),
        pytest.param('"a"', '"a,b"', SEND, id="first half"),
        pytest.param('"b"', '"a,b"', SEND, id="second half"),
        pytest.param('","', '"a","b"', SEND, id="what stands between two tags"),
        pytest.param('"a b"', '"a b"', SEND, id="space"),
        pytest.param('""', '""', NOT_MODIFIED, id="empty tag"),
        pytest.param('""', '"', SEND, id="half of an empty tag"),
        pytest.param('"W/"', '"W/"', NOT_MODIFIED, id="tag that reads W/"),
        pytest.param('"caf\udce9"', '"caf\udce9"', NOT_MODIFIED, id="obs-text, surrogateescape"),
        pytest.param('"caf\xe9"', '"caf\xe9"', NOT_MODIFIED, id="obs-text, latin-1"),
    ],
)
def test_entity_tags(etag: str, value: str, expected: ConditionalResult) -> None:
    assert outcome([("If-None-Match", value)], etag=etag) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (['"no"', '"current"'], NOT_MODIFIED),
        (['"current"', '"no"'], NOT_MODIFIED),
        (["", '"current"', "garbage"], NOT_MODIFIED),
        (['"cur', 'rent"'], SEND),
        (['W/"no', '"current"'], NOT_MODIFIED),
        (["*", "*"], SEND),
    ],
)
def test_if_none_match_on_several_lines_is_one_list(
    values: list[str], expected: ConditionalResult
) -> None:
    assert outcome([("if-none-match", value) for value in values]) is expected


def test_no_tag_spans_two_lines() -> None:
    lines = [("If-None-Match", '"a'), ("If-None-Match", 'b"')]
    assert outcome(lines, etag='"a,b"') is SEND


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(MODIFIED, NOT_MODIFIED, id="equal"),
        pytest.param(AFTER, NOT_MODIFIED, id="later"),
        pytest.param(BEFORE, SEND, id="earlier"),
        pytest.param("Thu, 01 Jan 1970 00:00:00 GMT", SEND, id="much earlier"),
        pytest.param("garbage", SEND, id="no date"),
        pytest.param("Sun, 06 Nov 1994 08:49:37 +0200", SEND, id="zone"),
        pytest.param(f"{AFTER}, {AFTER}", SEND, id="two dates"),
        pytest.param("", SEND, id="empty"),
        pytest.param("Sunday, 06-Nov-94 08:49:37 GMT", NOT_MODIFIED, id="RFC 850"),
        pytest.param("Sunday, 06-Nov-94 08:49:36 GMT", SEND, id="RFC 850, earlier"),
        pytest.param("Sun Nov  6 08:49:37 1994", NOT_MODIFIED, id="asctime"),
        pytest.param("Sun Nov  6 08:49:36 1994", SEND, id="asctime, earlier"),
        pytest.param("Fri, 31 Dec 9999 23:59:59 GMT", NOT_MODIFIED, id="far future"),
        pytest.param("Fri, 31 Dec 9999 23:59:60 GMT", NOT_MODIFIED, id="leap second"),
    ],
)
def test_if_modified_since(value: str, expected: ConditionalResult) -> None:
    assert outcome([("If-Modified-Since", value)]) is expected


def test_if_modified_since_on_several_lines_is_ignored() -> None:
    assert outcome([("If-Modified-Since", AFTER), ("If-Modified-Since", AFTER)]) is SEND


@pytest.mark.parametrize(
    ("value", "etag", "expected"),
    [
        pytest.param('"other"', '"current"', PRECONDITION_FAILED, id="another in If-Match"),
        pytest.param('"current"', '"current"', SEND, id="match"),
        pytest.param('"other", "current"', '"current"', SEND, id="match in a list"),
        pytest.param("*", '"current"', SEND, id="star"),
        pytest.param("*", 'W/"current"', SEND, id="star, stored weak"),
        pytest.param('W/"current"', '"current"', PRECONDITION_FAILED, id="weak"),
        pytest.param('"current"', 'W/"current"', PRECONDITION_FAILED, id="stored weak"),
        pytest.param('W/"current"', 'W/"current"', PRECONDITION_FAILED, id="both weak"),
        pytest.param("current", '"current"', PRECONDITION_FAILED, id="malformed"),
        pytest.param("", '"current"', PRECONDITION_FAILED, id="empty"),
    ],
)
def test_if_match(value: str, etag: str, expected: ConditionalResult) -> None:
    assert outcome([("If-Match", value)], etag=etag) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (MODIFIED, SEND),
        (AFTER, SEND),
        (BEFORE, PRECONDITION_FAILED),
        ("Sunday, 06-Nov-94 08:49:36 GMT", PRECONDITION_FAILED),
        ("garbage", SEND),
        (f"{BEFORE}, {BEFORE}", SEND),
        ("", SEND),
    ],
)
def test_if_unmodified_since(value: str, expected: ConditionalResult) -> None:
    assert outcome([("If-Unmodified-Since", value)]) is expected


def test_if_unmodified_since_on_several_lines_is_ignored() -> None:
    assert outcome([("If-Unmodified-Since", BEFORE), ("If-Unmodified-Since", BEFORE)]) is SEND


MATCH = ("If-Match", '"current"')
NO_MATCH = ("If-Match", '"other"')
UNMODIFIED = ("If-Unmodified-Since", MODIFIED)
NOT_UNMODIFIED = ("If-Unmodified-Since", BEFORE)
HELD = ("If-None-Match", '"current"')
NOT_HELD = ("If-None-Match", '"other"')
FRESH = ("If-Modified-Since", MODIFIED)
STALE = ("If-Modified-Since", BEFORE)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([NO_MATCH, UNMODIFIED], PRECONDITION_FAILED, id="1: tag before date"),
        pytest.param([MATCH, NOT_UNMODIFIED], SEND, id="1: no 2 after it"),
        pytest.param([NO_MATCH, HELD], PRECONDITION_FAILED, id="1 before 3"),
        pytest.param([MATCH, HELD], NOT_MODIFIED, id="1, then 3"),
        pytest.param([MATCH, FRESH], NOT_MODIFIED, id="1, then 4"),
        pytest.param([NOT_UNMODIFIED, HELD], PRECONDITION_FAILED, id="2 before 3"),
        pytest.param([UNMODIFIED, HELD], NOT_MODIFIED, id="2, then 3"),
        pytest.param([UNMODIFIED, STALE], SEND, id="2, then 4"),
        pytest.param([NOT_HELD, FRESH], SEND, id="3: no match, no 4 after it"),
        pytest.param([HELD, STALE], NOT_MODIFIED, id="3: match"),
    ],
)
def test_precedence(lines: Lines, expected: ConditionalResult) -> None:
    """Section 13.2.2; the order of headers does not matter."""
    assert outcome(lines) is expected
    assert outcome(lines[::-1]) is expected


def test_range_fields_have_no_say() -> None:
    for if_range in ('"current"', '"other"', MODIFIED):
        ranged = [("Range", "bytes=0-9"), ("If-Range", if_range)]
        assert outcome(ranged) is SEND
        assert outcome([*ranged, HELD]) is NOT_MODIFIED


def test_head_is_evaluated_like_get() -> None:
    for lines in ([HELD], [FRESH], [NO_MATCH], [NOT_HELD]):
        assert outcome(lines, method="HEAD") is outcome(lines)


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "get", ""])
def test_other_methods_are_not_evaluated(method: str) -> None:
    for line in (HELD, FRESH, NO_MATCH, NOT_UNMODIFIED):
        assert outcome([line], method=method) is SEND


opaque_tags = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters='"\x7f')
).map('"{}"'.format)

# Other tags, what is no tag, and quotes, white space and commas in all the wrong places.
noise = st.text(st.sampled_from('abW/"*, \t\\')) | st.sampled_from(
    ["", "x", "*", '"', '"x', 'x"', 'w/"x"', "W/", '"a b"', '"x"y', '"a,b"', 'W/"c"', "'x'"]
)


@given(
    opaque_tags.filter(lambda tag: "," not in tag),
    st.lists(noise),
    st.lists(noise),
    st.booleans(),
    st.booleans(),
)
def test_a_tag_is_found_in_any_list(
    tag: str, before: list[str], after: list[str], weak: bool, several_lines: bool
) -> None:
    """Except a tag with a comma: after a stray quote, ``","a"`` begins with the tag ``","``."""
    member = f"W/{tag}" if weak else tag
    values = [*before, member, *after]
    if not several_lines:
        values = [",".join(values)]
    lines = [("If-None-Match", value) for value in values]
    assert outcome(lines, etag=tag) is NOT_MODIFIED
    assert outcome(lines, etag=f"W/{tag}") is NOT_MODIFIED


@given(st.lists(opaque_tags | opaque_tags.map("W/".__add__)), opaque_tags)
def test_only_the_tags_of_a_valid_list_are_found(tags: list[str], etag: str) -> None:
    value = ", ".join(tags)
    named = etag in tags or f"W/{etag}" in tags
    assert (outcome([("If-None-Match", value)], etag=etag) is NOT_MODIFIED) == named
    assert (outcome([("If-Match", value)], etag=etag) is SEND) == (etag in tags)


@pytest.mark.ci_only
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"]
            ),
            noise | st.text() | st.sampled_from([BEFORE, AFTER, '"current"']),
        )
    )
)
def test_no_headers_raise(lines: Lines) -> None:
    assert outcome(lines) in ConditionalResult


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784111777),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784111777),
        ("Sun Nov  6 08:49:37 1994", 784111777),
        ("Wed Nov 16 08:49:37 1994", 784975777),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
        ("Mon, 01 Jan 0001 00:00:00 GMT", -62135596800),
        ("Tue, 29 Feb 2000 12:00:00 GMT", 951825600),
        ("Tue, 19 Jan 2038 03:14:08 GMT", 2**31),
        ("Fri, 31 Dec 9999 23:59:59 GMT", END_OF_9999),
        # A leap second is the first second of the next day.
        ("Sat, 31 Dec 2016 23:59:60 GMT", 1483228800),
        ("Fri, 31 Dec 9999 23:59:60 GMT", END_OF_9999 + 1),
        # A wrong day name is tolerated.
        ("Mon, 06 Nov 1994 08:49:37 GMT", 784111777),
        ("Friday, 06-Nov-94 08:49:37 GMT", 784111777),
        ("Tue Nov  6 08:49:37 1994", 784111777),
    ],
)
def test_dates_are_read(text: str, seconds: int) -> None:
    assert parse_http_date(text, now=NOW) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "784111777",
        "1994-11-06T08:49:37Z",
        # Zones and case: GMT is the only zone, and names are case sensitive.
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37 +0200",
        "Sun, 06 Nov 1994 08:49:37 gmt",
        "Sun, 06 Nov 1994 08:49:37 GMT+1",
        "sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 NOV 1994 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994 GMT",
        # Two dates.
        f"{MODIFIED}, {MODIFIED}",
        f"{MODIFIED} {MODIFIED}",
        # Days and times that do not exist.
        "Thu, 31 Feb 1994 08:49:37 GMT",
        "Mon, 29 Feb 2023 08:49:37 GMT",
        "Fri, 29-Feb-75 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 32 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        # Other widths, separators and white space.
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 06 Nov 10000 08:49:37 GMT",
        "Sun, 06 Nov 1994 8:49:37 GMT",
        "Sun, 06 Nov 1994 08:49 GMT",
        "Sun, 06-Nov-1994 08:49:37 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov  16 08:49:37 1994",
        "Sun,  06 Nov 1994 08:49:37 GMT",
        "Sun 06 Nov 1994 08:49:37 GMT",
        "06 Nov 1994 08:49:37 GMT",
        " Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 06 Nov 1994 08:49:37 GMT\n",
        "Sun, 06 Nov 1994 08:49:37 GMT\x00",
        "Sun, 06 Nov -994 08:49:37 GMT",
        # Digits of other scripts.
        "Sun, \u0660\u0666 Nov 1994 08:49:37 GMT",
    ],
)
def test_what_is_no_date_is_ignored(text: str) -> None:
    assert parse_http_date(text, now=NOW) is None


@pytest.mark.parametrize(
    ("now", "text", "year"),
    [
        # More than 50 years in the future is the past, to the second; exactly 50 years is not.
        ("2025-11-21T12:00:00", "Thursday, 21-Nov-75 12:00:00 GMT", 2075),
        ("2025-11-21T12:00:00", "Thursday, 21-Nov-75 12:00:01 GMT", 1975),
        ("2025-11-21T12:00:00", "Thursday, 21-Nov-74 12:00:01 GMT", 2074),
        ("2025-11-21T12:00:00", "Sunday, 01-Jan-75 00:00:00 GMT", 2075),
        ("2025-11-21T12:00:00", "Sunday, 01-Jan-76 00:00:00 GMT", 1976),
        ("2025-11-21T12:00:00", "Sunday, 01-Jan-00 00:00:00 GMT", 2000),
        ("2025-11-21T12:00:00", "Sunday, 01-Jan-26 00:00:00 GMT", 2026),
        ("1999-12-31T23:59:59", "Saturday, 01-Jan-00 00:00:00 GMT", 2000),
        ("2090-01-01T00:00:00", "Saturday, 01-Jan-10 00:00:00 GMT", 2110),
        ("2090-01-01T00:00:00", "Saturday, 01-Jan-41 00:00:00 GMT", 2041),
        ("2024-02-29T00:00:00", "Saturday, 01-Mar-74 00:00:00 GMT", 1974),
        ("2024-02-29T00:00:00", "Saturday, 28-Feb-74 00:00:00 GMT", 2074),
    ],
)
def test_two_digits_are_a_year_at_most_fifty_years_ahead(now: str, text: str, year: int) -> None:
    seconds = parse_http_date(text, now=datetime.fromisoformat(f"{now}+00:00").timestamp())
    assert seconds is not None
    assert datetime.fromtimestamp(seconds, UTC).year == year


@given(st.integers(0, END_OF_9999))
@example(0)
@example(END_OF_9999)
def test_a_date_written_is_read_again(seconds: int) -> None:
    written = format_http_date(seconds)
    assert parse_http_date(written, now=NOW) == seconds
    moment = datetime.fromtimestamp(seconds, UTC)
    assert written == f"{moment:%a, %d %b} {moment.year:04} {moment:%H:%M:%S} GMT"
    asctime = f"{moment:%a %b} {moment.day:2} {moment:%H:%M:%S} {moment.year:04}"
    assert parse_http_date(asctime, now=NOW) == seconds


@given(st.integers(0, END_OF_9999), st.floats(-25 * 365 * 86400, 49 * 365 * 86400))
def test_a_date_of_rfc_850_is_read_near_its_time(now: int, distance: float) -> None:
    seconds = min(max(int(now + distance), 0), END_OF_9999)
    text = f"{datetime.fromtimestamp(seconds, UTC):%A, %d-%b-%y %H:%M:%S} GMT"
    assert parse_http_date(text, now=now) == seconds


near_misses = st.from_regex(
    r"(Sun|Sunday|Xyz),? [0-9 ]{2}[ -](Jan|Feb|nov)[ -][0-9]{2,5} [0-9]{2}:[0-9]{2}:[0-9]{2}( GMT)?"
)


@given(st.text() | near_misses, st.integers(0, END_OF_9999))
def test_no_text_raises(text: str, now: int) -> None:
    seconds = parse_http_date(text, now=now)
    assert seconds is None or isinstance(seconds, int)
