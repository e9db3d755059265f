"""The rules of the cache between pages and the origin (RFC 9111)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from prerender.http import caching
from prerender.http.caching import Terms
from prerender.http.conditional import format_http_date

NOW = 1_700_000_000
SCRIPT = ("Content-Type", "text/javascript; charset=utf-8")
JSON = ("Content-Type", "application/json")
Lines = tuple[tuple[str, str], ...]


def date(offset: int) -> str:
    return format_http_date(NOW + offset)


def terms(*lines: tuple[str, str], status: int = 200) -> Terms | None:
    return caching.terms(status, CIMultiDict(lines), NOW)


KEPT: list[tuple[Lines, float, float]] = [
    ((("Cache-Control", "max-age=60"),), 60, 0),
    ((("Cache-Control", "MAX-AGE=60"),), 60, 0),
    ((("Cache-Control", 'max-age="60"'),), 60, 0),
    ((("Cache-Control", "public"), ("Cache-Control", "max-age=60")), 60, 0),
    ((("Cache-Control", "max-age=60, max-age=5"),), 60, 0),
    ((("Cache-Control", "max-age=5, s-maxage=60"),), 60, 0),
    ((("Cache-Control", "max-age=99999999999999999999"),), 2**31, 0),
    ((("Cache-Control", "max-age=31536000, immutable"),), 31536000, 0),
    ((("Cache-Control", "max-age=60, must-revalidate"),), 60, 0),
    ((("Cache-Control", "max-age=60"), ("Age", "20")), 60, 20),
    ((("Cache-Control", "max-age=60"), ("Date", date(-30))), 60, 30),
    ((("Cache-Control", "max-age=60"), ("Date", date(-30)), ("Age", "40")), 60, 40),
    ((("Cache-Control", "max-age=60"), ("Date", date(+90))), 60, 0),
    ((("Cache-Control", "max-age=60"), ("Age", "soon")), 60, 0),
    ((("Expires", date(90)), ("Date", date(0))), 90, 0),
    ((("Expires", date(90)), ("Date", date(-10))), 100, 10),
    ((("Expires", date(90)),), 90, 0),
    ((("Cache-Control", "max-age=60"), ("Expires", date(-90))), 60, 0),
    # Kept to be asked about: nothing says how long it is fresh.
    ((("ETag", '"a"'),), 0, 0),
    ((("Last-Modified", date(-1000)),), 0, 0),
    ((("Cache-Control", "no-cache"), ("ETag", '"a"')), 0, 0),
    ((("Cache-Control", "no-cache, max-age=60"), ("ETag", '"a"')), 0, 0),
    ((("Cache-Control", "max-age=soon"), ("ETag", '"a"')), 0, 0),
    ((("Cache-Control", "max-age=-1"), ("ETag", '"a"')), 0, 0),
    ((("Expires", "0"), ("ETag", '"a"')), 0, 0),
]
NOT_KEPT: list[Lines] = [
    (),
    (("Cache-Control", "public"),),
    (("Cache-Control", "max-age=0"),),
    (("Expires", "0"),),
    (("Expires", date(-1)), ("Date", date(0))),
    (("Cache-Control", "no-store"), ("ETag", '"a"')),
    (("Cache-Control", "max-age=60, No-Store"),),
    (("Cache-Control", "private, max-age=60"),),
    (("Cache-Control", 'private="x, y", max-age=60'),),
    (("Cache-Control", "max-age=60"), ("Set-Cookie", "a=b")),
    (("Cache-Control", "max-age=60"), ("Vary", "*")),
    (("Cache-Control", "max-age=60"), ("Vary", "Accept"), ("Vary", " * ")),
]


@pytest.mark.parametrize(("lines", "lifetime", "age"), KEPT)
def test_kept(lines: Lines, lifetime: float, age: float) -> None:
    assert terms(SCRIPT, *lines) == Terms(lifetime, age)


@pytest.mark.parametrize("lines", NOT_KEPT)
def test_not_kept(lines: Lines) -> None:
    assert terms(SCRIPT, *lines) is None


@pytest.mark.parametrize("status", [201, 203, 204, 206, 301, 302, 304, 404, 500])
def test_only_whole_successes_are_kept(status: int) -> None:
    assert terms(SCRIPT, ("Cache-Control", "public, max-age=60"), status=status) is None


@pytest.mark.parametrize(
    "media_type",
    [
        "text/javascript",
        "Application/JavaScript",
        "application/x-javascript",
        "text/css; charset=x",
        "image/svg+xml",
        "font/woff2",
        "application/font-woff",
        "application/x-font-ttf",
        "application/vnd.ms-fontobject",
        "application/wasm",
        "application/manifest+json",
    ],
)
def test_assets(media_type: str) -> None:
    assert terms(("Content-Type", media_type), ("Cache-Control", "max-age=60"))


@pytest.mark.parametrize("media_type", ["text/html", "application/json", "text/plain", "image", ""])
def test_documents_and_data_have_to_say_that_they_are_for_all(media_type: str) -> None:
    of_type = ("Content-Type", media_type)
    assert terms(of_type, ("Cache-Control", "max-age=60"), ("ETag", '"a"')) is None
    assert terms(of_type, ("Cache-Control", "public, max-age=60")) == Terms(60, 0)
    assert terms(of_type, ("Cache-Control", "s-maxage=60")) == Terms(60, 0)


@pytest.mark.parametrize(
    ("method", "lines", "expected"),
    [
        ("GET", (), True),
        ("GET", (("Cookie", "a=b"), ("Sec-Fetch-Dest", "script"), ("Referer", "x")), True),
        ("GET", (("Cache-Control", "no-cache"),), True),
        ("GET", (("Cache-Control", "no-store"),), False),
        ("GET", (("Range", "bytes=0-1"),), False),
        ("GET", (("Authorization", "Basic x"),), False),
        ("GET", (("X-Forwarded-Host", "evil.example"),), False),
        ("GET", (("Content-Type", "text/plain"),), False),
        ("HEAD", (), False),
        ("POST", (), False),
    ],
)
def test_requests_that_may_be_shared(method: str, lines: Lines, expected: bool) -> None:
    assert caching.may_be_shared(method, CIMultiDict(lines)) is expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), False),
        ((("Cache-Control", "no-cache"),), True),
        ((("Cache-Control", "max-age=0"),), True),
        ((("Cache-Control", "min-fresh=10"),), True),
        ((("Cache-Control", "max-stale"),), False),
        ((("Pragma", "no-cache"),), True),
        ((("Cache-Control", "max-stale"), ("Pragma", "no-cache")), False),
    ],
)
def test_pages_that_want_to_hear_it_from_the_origin(lines: Lines, expected: bool) -> None:
    assert caching.demands_validation(CIMultiDict(lines)) is expected


@pytest.mark.parametrize(
    ("cache_control", "expected"),
    [
        ("", False),
        ("max-age=60, No-Store", True),
        ('private="set-cookie", max-age=60', True),
        ('no-cache="a, private", max-age=60', False),
        ("no-stored", False),
    ],
)
def test_what_no_shared_cache_may_store(cache_control: str, expected: bool) -> None:
    assert caching.forbids_storing(cache_control) is expected


def kept(request: Lines, response: Lines, on: Terms | None = None) -> caching.StoredResponse:
    headers = CIMultiDict(response)
    return caching.stored(CIMultiDict(request), headers, b"x", on or Terms(60, 10), 1000)


def test_freshness_is_counted_from_when_it_was_made() -> None:
    stored = kept((), (SCRIPT, ("Age", "10"), ("Date", date(0))))
    assert (stored.age(1000), stored.age(1025.5)) == (10, 35.5)
    assert stored.is_fresh(1049.9)
    assert not stored.is_fresh(1050)
    assert list(stored.headers.items()) == [SCRIPT]


SAME_COOKIE = ("Cookie", "a=b")


def test_what_selects_an_answer() -> None:
    stored = kept((("Accept", "*/*"), SAME_COOKIE, ("X", "1")), (SCRIPT, ("Vary", "X, sec-gpc")))
    for other, expected in [
        ((("Accept", "*/*"), ("X", "1"), ("Cookie", "c=d")), False),
        ((("Accept", "*/*"), ("X", "1"), SAME_COOKIE), True),
        ((("accept", "*/*"), ("x", "1"), SAME_COOKIE, ("Referer", "y")), True),
        ((("Accept", "*/*"), ("X", "2"), SAME_COOKIE), False),
        ((("Accept", "*/*"), ("X", "1"), ("X", "1"), SAME_COOKIE), False),
        ((("Accept", "*/*"), ("X", "1"), ("Sec-GPC", "1"), SAME_COOKIE), False),
        ((("Accept", "text/html"), ("X", "1"), SAME_COOKIE), False),
        ((("Accept", "*/*"), ("X", "1"), ("Origin", "https://a.example"), SAME_COOKIE), False),
    ]:
        assert stored.fits(CIMultiDict(other)) is expected, other


def test_a_304_renews() -> None:
    old = kept((), (SCRIPT, ("ETag", '"a"'), ("Content-Length", "1"), ("X", "old")), Terms(5, 0))
    assert old.conditions() == {"If-None-Match": '"a"'}
    response = CIMultiDict(
        [("Cache-Control", "max-age=90"), ("Age", "30"), ("X", "new"), ("Content-Length", "0")]
    )
    new = caching.refreshed(old, response, NOW, 2000)
    assert (new.lifetime, new.age(2000), new.body) == (90, 30, b"x")
    assert dict(new.headers) == {
        "Content-Type": SCRIPT[1],
        "ETag": '"a"',
        "Content-Length": "1",
        "X": "new",
        "Cache-Control": "max-age=90",
    }
    plain = caching.refreshed(old, CIMultiDict(), NOW, 2000)
    assert not plain.is_fresh(2000)


@pytest.mark.ci_only
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "Cache-Control",
                    "Expires",
                    "Date",
                    "Age",
                    "Vary",
                    "ETag",
                    "Content-Type",
                    "Pragma",
                ]
            ),
            st.one_of(
                st.text(st.characters(codec="latin-1"), max_size=20),
                st.sampled_from(["max-age=9", "no-store", "private", "public", date(9), "9", "*"]),
            ),
        ),
        max_size=8,
    )
)
def test_whatever_an_origin_says(lines: list[tuple[str, str]]) -> None:
    """Nothing raises, and what any line forbids is not stored."""
    headers = CIMultiDict(lines)
    found = caching.terms(200, headers, NOW)
    if found:
        assert 0 <= found.lifetime <= 2**40
        assert found.age >= 0
        said = ", ".join(headers.getall("Cache-Control", ())).lower()
        tokens = {token.strip() for token in said.split(",")}
        assert not tokens & {"no-store", "private"} or '"' in said
