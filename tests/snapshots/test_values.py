"""The pure parts of the snapshot store: rules, targets, codings, purges, and the format of entries."""

import gzip

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from prerender.config import load
from prerender.config.settings import TRACKING_PARAMETERS
from prerender.crawlers.from_settings import triggers_of
from prerender.errors import BadEntry
from prerender.http.encodings import CODINGS, accepted, encoded
from prerender.rendering.snapshot_builder import asset_fingerprint_of
from prerender.snapshots.entry import Entry, decode, encode
from prerender.snapshots.freshness import Freshness, page_ttl, worse_than
from prerender.snapshots.purges import MOST_RECORDS, Purge, Purges, Verdict, tags_of
from prerender.snapshots.snapshot import Facts, Snapshot, etag_of
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL, ugly_to_pretty
from prerender.urls.cache_busters import is_same_page
from prerender.urls.patterns import comparable, matches
from prerender.urls.tracking import Tracking
from tests.support.renders import freshness_of

PUBLIC = URL("https://www.example.com")
TRACKING = Tracking(TRACKING_PARAMETERS)
HTML = b"<p>" + b"words and more words " * 100


def snapshot(status: int = 200, body: bytes = b"<p>text", **values: object) -> Snapshot:
    given_values = {"headers": (), "etag": etag_of(status, (), body), "last_modified": 1}
    return Snapshot(status=status, body=body, **(given_values | values))  # type: ignore[arg-type]


# ---- targets


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/", "/"),
        ("/?", "/?"),
        ("/?utm_source=a", "/"),
        ("/?a=1&utm_source=a&b=2", "/?a=1&b=2"),
        ("/?utm_source=a&utm_medium=b", "/"),
        ("/?gclid=1&a=%20+&fbclid", "/?a=%20+"),
        ("/?a=utm_source", "/?a=utm_source"),
        ("/?&utm_x=1&&a=1&", "/?&&a=1&"),
        ("/?a=1?utm_source=2", "/?a=1?utm_source=2"),
        ("/?UTM_source=1", "/?UTM_source=1"),
        ("/utm_source=1", "/utm_source=1"),
        ("/?xgclid=1", "/?xgclid=1"),
    ],
)
def test_tracking_parameters(path: str, kept: str) -> None:
    assert TRACKING.without(path) == kept


@pytest.mark.parametrize(
    ("url", "other", "same"),
    [
        ("/a", "/a", True),
        ("/a", "/a?v=1795747892542", True),
        ("/a", "/a?1795747892542", True),
        ("/a?b=1", "/a?b=1&_=1795747892", True),
        ("/a?v=1795747892542", "/a?v=1795747892543", True),
        ("/a?v=1795747892542", "/a?w=1795747892543", False),
        ("/a?v=1795747892542", "/a", False),
        ("/a", "/a?v=1795747892542&w=1795747892542", False),
        ("/a", "/a?page=2", False),
        ("/a?page=1", "/a?page=2", False),
        ("/a", "/b?v=1795747892542", False),
        ("/a?b=1", "/a?v=1795747892542", False),
        ("/a?v=1700000000000", "/a?v=1795747892542", True),
        ("/a?v=1795747892542", "/a?v=1700000000000", False),
        ("/a?v=2", "/a?v=1795747892542", False),
        ("/a?id=123456789", "/a?id=987654321", False),
        ("/a?id=1000000001", "/a?id=1000000002", False),
        ("/a", "/a?user=400012345678", False),
        ("/a", "/a?user=1000000000001", False),
    ],
)
def test_urls_that_only_get_past_caches(url: str, other: str, same: bool) -> None:
    assert is_same_page(url, other, 1795747893) == same


def test_every_parameter_can_be_left_out() -> None:
    assert Tracking(["*"]).without("/a?b=1&c&d=2") == "/a"
    assert Tracking(()).without("/a?utm_source=1") == "/a?utm_source=1"


def test_what_the_browser_opens_has_no_tracking_parameters() -> None:
    target = Target.of(PUBLIC, PrettyURL("/p?utm_source=x&a=1", "/s?utm_source=y"), TRACKING)
    assert target.url == "https://www.example.com/p?a=1#!/s"
    assert target.request_target == "/p?a=1"
    assert target.path == "/p?a=1#!/s"
    assert target == Target.of(PUBLIC, PrettyURL("/p?a=1&gclid=2", "/s?utm_id=y"), TRACKING)
    # An anchor is not part of the query in a state.
    with_anchor = Target.of(PUBLIC, PrettyURL("/p", "/s?utm_source=y#one"), TRACKING)
    assert with_anchor == Target.of(PUBLIC, PrettyURL("/p", "/s#one"), TRACKING)
    assert target == Target.of(PUBLIC, PrettyURL("/p?a=1", "/s"), TRACKING)
    state = Target.of(PUBLIC, PrettyURL("/p", "/s?b=2&utm_source=y&c=/utm_x"), TRACKING)
    assert state.path == "/p#!/s?b=2&c=/utm_x"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PrettyURL("/a?b", ""), PrettyURL("/a%3Fb", "")),
        (PrettyURL("/%61", ""), PrettyURL("/a", "")),
        (PrettyURL("/a", ""), PrettyURL("/a/", "")),
        (PrettyURL("/A", ""), PrettyURL("/a", "")),
        (PrettyURL("/a", "x"), PrettyURL("/a", "")),
        (PrettyURL("/a?x=1&y=2", ""), PrettyURL("/a?y=2&x=1", "")),
        (PrettyURL("/a;b", ""), PrettyURL("/a", "")),
        (PrettyURL("/a%00.css", ""), PrettyURL("/a.css", "")),
        (PrettyURL("/?", ""), PrettyURL("/", "")),
    ],
)
def test_other_pages_have_other_keys(one: PrettyURL, other: PrettyURL) -> None:
    assert Target.of(PUBLIC, one, TRACKING).key != Target.of(PUBLIC, other, TRACKING).key


def test_other_sites_have_other_keys() -> None:
    sites = ("http://a.example", "https://a.example", "https://b.example", "https://a.example:444")
    assert len({Target.of(URL(site), PrettyURL("/", "")).key for site in sites}) == 4


# ---- patterns and rules


@pytest.mark.parametrize(
    ("pattern", "page", "expected"),
    [
        ("/a", "/a", True),
        ("/a", "/ab", False),
        ("/a*", "/a", True),
        ("/a*", "/abc/d?e#!f", True),
        ("*", "", True),
        ("*b", "/a/b", True),
        ("*b", "/b/a", False),
        ("/#!/items/*", "/#!/items/3", True),
        ("/#!/items/*", "/", False),
        ("/a*a", "/a", False),
        ("/a*b*c", "/aXbYc", True),
        ("/a*b*c", "/acb", False),
        ("/a**c", "/abc", True),
        ("/a.c", "/abc", False),
        ("/a?c", "/abc", False),
        ("/[ab]", "/a", False),
        ("*x*x*", "x", False),
        ("/über/*", "/%C3%BCber/a", True),
        ("/über/*", "/%c3%bcber/a", True),
        ("/%c3%bcber/*", "/%C3%BCber/a", True),
        # As octets, as some crawlers send them.
        ("/über/*", "/\udcc3\udcbcber/a", True),
        ("/über/*", "/uber/a", False),
        ("/a b*", "/a%20b", True),
        ('/?q="x"', '/?q="x"', True),
        ('/#!/"ü"*', "/#!/%22%C3%BC%22", True),
        ("/100%", "/100%", True),
        ("/*/A", "/a", False),
    ],
)
def test_patterns(pattern: str, page: str, expected: bool) -> None:
    assert matches(comparable(pattern), comparable(page)) is expected
    purges = Purges().with_([Purge("pattern", comparable(pattern))], 1.0)
    assert (purges.verdict(page, (), "", 0) is not None) is expected


def test_patterns_of_settings_and_purges_have_the_form_of_pages() -> None:
    page = str(ugly_to_pretty("/%c3%bcber/?_escaped_fragment_=/%C3%BC"))
    environ = {
        "PRERENDER_ORIGIN": "http://app:1",
        "PRERENDER_TRIGGERS_EXCLUDE": "/über/#!/ü",
        "PRERENDER_CACHE_RULES": '[{"path": "/über/*", "ttl": 5}]',
    }
    settings = load(None, environ)
    assert not triggers_of(settings).may_render(page)
    assert triggers_of(settings).may_render("/uber/")
    assert Freshness(settings.cache).ordinary(page) == 5
    prefixed = Purges().with_([Purge("prefix", comparable("/über/#!/"))], 1.0)
    assert prefixed.verdict(page, (), "", 0)
    assert prefixed.verdict("/%C3%BCber/", (), "", 0) is None
    # As other releases store it.
    stored = Purges().with_([Purge("prefix", "/%c3%bcber/")], 1.0)
    assert stored.verdict(page, (), "", 0)


@given(st.lists(st.text("ab/", max_size=3), min_size=1, max_size=5), st.text("ab/", max_size=3))
def test_a_pattern_matches_whatever_stands_for_its_stars(parts: list[str], between: str) -> None:
    assert matches("*".join(parts), between.join(parts))


def test_a_pattern_is_quick_on_the_longest_page() -> None:
    assert not matches("/" + "*a" * 50 + "*b", "/" + "a" * 8000)


RULES = (("/news/*", 300.0), ("/news/old*", 5.0), ("/my/*", 0.0))
OWNER = freshness_of(3600.0, rules=RULES)
LASTING = Facts("failed", lasting=True, failed_requests=("/x",))


@pytest.mark.parametrize(
    ("page", "seconds"),
    [("/", 3600), ("/news/1", 300), ("/news/old", 300), ("/my/account", 0)],
)
def test_the_first_rule_that_matches_counts(page: str, seconds: float) -> None:
    assert OWNER.lifetime(page, snapshot()) == seconds


@pytest.mark.parametrize(
    ("freshness", "made", "seconds"),
    [
        (OWNER, snapshot(404), 60),
        (OWNER, snapshot(410), 60),
        (freshness_of(10, 60), snapshot(404), 10),
        (OWNER, snapshot(500), 0),
        (OWNER, snapshot(301), 0),
        (OWNER, snapshot(storable=False), 0),
        (freshness_of(3600, obey_origin=False), snapshot(storable=False), 3600),
        (OWNER, snapshot(facts=Facts("cut-off")), 0),
        (OWNER, snapshot(facts=Facts(failed_requests=("/x",))), 30),
        (OWNER, snapshot(still_loading=True), 30),
        (OWNER, snapshot(facts=LASTING), 30),
        (freshness_of(10), snapshot(facts=LASTING), 10),
        (OWNER, snapshot(503, facts=LASTING), 0),
        (OWNER, snapshot(ttl=5.0), 3600),
        (freshness_of(3600, page_ttl=True), snapshot(ttl=5.0), 5),
        (freshness_of(3600, page_ttl=True), snapshot(ttl=0.0), 0),
        (freshness_of(3600, 60, page_ttl=True), snapshot(404, ttl=600.0), 60),
        (freshness_of(0, page_ttl=True), snapshot(ttl=600.0), 0),
    ],
)
def test_lifetimes(freshness: Freshness, made: Snapshot, seconds: float) -> None:
    assert freshness.lifetime("/", made) == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ((), None),
        (("60",), 60),
        (("0",), 0),
        (("1h", "20"), 20),
        (("-1",), None),
        (("٣",), None),
        (("999999999",), 365 * 86400),
        (("9" * 400,), None),
    ],
)
def test_a_pages_own_word_on_its_time(words: tuple[str, ...], seconds: float | None) -> None:
    assert page_ttl(words) == seconds


def test_what_is_worse() -> None:
    good = snapshot(facts=Facts(text_length=100))
    assert worse_than(good, snapshot(503)) == "status-503"
    assert worse_than(good, snapshot(404)) == ""
    assert worse_than(good, snapshot(facts=Facts(text_length=19))) == "shrunken"
    assert worse_than(good, snapshot(facts=Facts(text_length=20))) == ""
    assert worse_than(snapshot(404), snapshot(503)) == ""


# ---- codings


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        ((), "identity"),
        (("",), "identity"),
        (("gzip",), "gzip"),
        (("x-gzip",), "gzip"),
        (("GZIP",), "gzip"),
        (("gzip, deflate, br",), "br"),
        (("gzip, br;q=0.9",), "gzip"),
        (("gzip;q=0.5 , br ; q=0.50",), "br"),
        (("gzip;q=0.1, zstd;q=0.2",), "zstd"),
        (("gzip", "br"), "br"),
        (("*",), "br"),
        (("*;q=0.1, br;q=0",), "zstd"),
        (("br;q=0, gzip;q=0, zstd;q=0, *",), "identity"),
        (("identity, gzip;q=0.5",), "identity"),
        (("identity;q=0, gzip;q=0.001",), "gzip"),
        (("identity;q=0",), "identity"),
        (("*;q=0",), "identity"),
        (("deflate, compress",), "identity"),
        (("gzip;q=2",), "identity"),
        (("gzip;level=9",), "identity"),
        (("gzip;q=0.1234",), "identity"),
        (("gzip" + " " * 600,), "identity"),
        ((",, ,gzip,",), "gzip"),
    ],
)
def test_which_coding_a_client_gets(lines: tuple[str, ...], first: str) -> None:
    codings = accepted(",".join(lines))
    assert codings[0] == first
    assert "identity" in codings


@given(st.lists(st.text(max_size=60)))
def test_whatever_is_accepted_there_is_something_to_send(lines: list[str]) -> None:
    codings = accepted(",".join(lines))
    assert set(codings) <= {*CODINGS, "identity"}
    assert "identity" in codings


def test_the_codings_are_of_the_body() -> None:
    made = dict(encoded(HTML))
    assert set(made) == set(CODINGS)
    assert brotli.decompress(made["br"]) == HTML
    assert zstandard.ZstdDecompressor().decompress(made["zstd"]) == HTML
    assert gzip.decompress(made["gzip"]) == HTML
    assert encoded(HTML) == encoded(HTML)
    assert encoded(b"<p>short") == ()


def test_what_cannot_be_compressed_is_sent_as_it_is() -> None:
    noise = bytes((i * i * 7919 >> 5) & 0xFF for i in range(4000))
    for _, data in encoded(noise):
        assert len(data) < len(noise)


def test_each_representation_has_its_validator() -> None:
    kept = snapshot(body=HTML, encoded=encoded(HTML), etag='"abc"')
    found = {coding: kept.best([coding]) for coding in ("identity", *CODINGS)}
    assert {coding: one.etag for coding, one in found.items()} == {
        "identity": '"abc"',
        "br": '"abc-br"',
        "zstd": '"abc-zstd"',
        "gzip": '"abc-gzip"',
    }
    assert b"Content-Encoding: gzip\r\n" in found["gzip"].content_fields
    assert b"Content-Encoding" not in found["identity"].content_fields
    weak = snapshot(etag='W/"abc"', encoded=(("br", b"x"),))
    assert weak.best(["zstd", "br", "identity"]).etag == 'W/"abc-br"'
    assert weak.best(["zstd", "identity", "br"]).etag == 'W/"abc"'


# ---- the format

ENTRY = Entry(
    "key",
    "/p\udcff?a=1#!b",
    snapshot(
        body=HTML,
        headers=(("Link", "</x\udce9>"), ("X-Robots-Tag", "noindex")),
        encoded=encoded(HTML),
        facts=Facts(text_length=7, failed_requests=("/api", "/x")),
        ttl=60.0,
        tags=("a", "b"),
        asset_fingerprint="00ff",
    ),
    stored=1.5,
    expires=2.5,
    retry=3.5,
    refusals=2,
    generation=2**53,
    fence=2**63 + 5,
)


def test_an_entry_is_read_as_it_was_written() -> None:
    assert decode(encode(ENTRY)) == ENTRY
    plain = Entry("key", "/", snapshot(), 1.0, 2.0)
    assert decode(encode(plain)) == plain


@given(st.data())
def test_an_entry_that_is_not_whole_is_a_bad_one(data: st.DataObject) -> None:
    whole = encode(ENTRY)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BadEntry):
        decode(whole[:cut])
    with pytest.raises(BadEntry):
        decode(whole + b"\0")
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadEntry):
        decode(bytes(damaged))


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"PRS4" + data))
def test_foreign_bytes_are_a_bad_entry(data: bytes) -> None:
    with pytest.raises(BadEntry):
        decode(data)


# ---- purges


def test_purges_mean_what_they_say() -> None:
    for purge in (
        Purge("url", "/a?b#!c"),
        Purge("prefix", "/a"),
        Purge("pattern", "/*#!c"),
        Purge("tag", "shop"),
        Purge("asset_fingerprint", "00ff"),
        Purge("all"),
    ):
        purges = Purges().with_([purge], 5.0)
        assert purges.verdict("/a?b#!c", ("x", "shop"), "00ff", 0) == Verdict(False, 5.0)
        assert purges.verdict("/a?b#!c", ("x", "shop"), "00ff", purges.generation) is None
        other = purges.verdict("/b", ("y",), "11ff", 0)
        assert other == (Verdict(False, 5.0) if purge.kind == "all" else None)


def test_a_hard_purge_wins_over_a_soft_one() -> None:
    purges = Purges().with_([Purge("url", "/a")], 1.0).with_([Purge("all", soft=True)], 2.0)
    assert purges.verdict("/a", (), "", 0) == Verdict(False, 1.0)
    assert purges.verdict("/a", (), "", 1_000_000) == Verdict(True, 2.0)
    assert purges.verdict("/b", (), "", 0) == Verdict(True, 2.0)


def test_numbers_grow_although_the_clock_stands() -> None:
    purges = Purges()
    generations = []
    for name in "abc":
        purges = purges.with_([Purge("tag", name)], 1.0)
        generations.append(purges.generation)
    assert generations == sorted(set(generations))


def test_what_a_list_of_purges_lacks() -> None:
    soft, hard = (Purges({Purge("all", soft=soft): 5}) for soft in (True, False))
    for number, purge, others, lacks in (
        (5, Purge("url", "/a"), Purges({Purge("url", "/a"): 5}), False),
        (5, Purge("url", "/a"), Purges({Purge("url", "/a"): 4, Purge("url", "/b"): 6}), True),
        (5, Purge("url", "/a"), hard, False),
        (6, Purge("url", "/a"), hard, True),
        (5, Purge("url", "/a"), soft, True),
        (5, Purge("url", "/a", soft=True), soft, False),
        (5, Purge("url", "/a", soft=True), hard, False),
    ):
        assert len(Purges({purge: number}).missing_in(others)) == lacks


def test_many_purges_become_one_of_everything() -> None:
    purges = Purges()
    for number in range(MOST_RECORDS + 1):
        purges = purges.with_([Purge("url", f"/{number}", soft=True)], number)
    assert len(purges) <= MOST_RECORDS
    for page in ("/0", f"/{MOST_RECORDS}"):
        assert purges.verdict(page, (), "", 0) is not None
    assert purges.verdict("/0", (), "", purges.generation) is None


def test_purges_at_once_are_bounded_too() -> None:
    old = Purges({Purge("url", f"/{n}", soft=n % 2 == 0): n + 1 for n in range(MOST_RECORDS)})
    new = [Purge("tag", f"{n}") for n in range(1000)]
    purges = old.with_(new, 1.0)
    assert purges.generation == 1_000_000
    assert all(purges.records[purge] == purges.generation for purge in new)
    assert len(purges) <= MOST_RECORDS
    assert purges.verdict("/0", (), "", 0) is not None
    others = Purges({Purge("tag", f"other{n}"): n + 1 for n in range(MOST_RECORDS)})
    assert len(old.united(others)) <= MOST_RECORDS


@given(
    st.builds(
        Purge,
        st.sampled_from(["url", "prefix", "pattern", "tag", "all", "asset_fingerprint"]),
        st.text(st.characters(exclude_categories=["Cs"])) | st.just("/\udcff"),
        st.booleans(),
    )
)
def test_a_purge_is_read_as_it_was_written(purge: Purge) -> None:
    assert Purge.parse(purge.dump()) == purge


@pytest.mark.parametrize("data", [b"", b"url", b"url:weak:/", b"word:hard:/", b"\xff"])
def test_foreign_records_are_left_out(data: bytes) -> None:
    assert len(Purges.parse([(data, 1)], 2.0)) == 0


def test_tags() -> None:
    assert tags_of(["a, b", "b c,,d", "", "ü", "x" * 129]) == ("a", "b", "c", "d")


def test_the_asset_fingerprint_covers_scripts_and_styles() -> None:
    fingerprint = asset_fingerprint_of(
        b"<script src='/app.1.js'></script><link rel=stylesheet href=/a.css><p>x"
    )
    assert fingerprint
    assert fingerprint == asset_fingerprint_of(
        b'<link href="/icon" rel=icon><script defer src=/app.1.js></script>'
        b'<link href="/a.css" rel="stylesheet"><h1>other'
    )
    assert fingerprint != asset_fingerprint_of(
        b"<script src='/app.2.js'></script><link rel=stylesheet href=/a.css>"
    )
    assert asset_fingerprint_of(b"<script>1</script>") == ""
    assert asset_fingerprint_of(b"<script " * 100_000) == ""
