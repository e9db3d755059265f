"""The AJAX crawling scheme: the mapping in both directions, and its properties."""

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prerender.urls.ajax_crawling import UGLY_TOKEN, PrettyURL, pretty_to_ugly, ugly_to_pretty

VISIBLE = "".join(map(chr, range(0x21, 0x7F)))

# Any text that could be in a URL, and what only an attacker would send.
unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
any_text = st.text()
octets = st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
visible = st.text(st.sampled_from(VISIBLE.replace("#", "")))
untokened_paths = visible.map("/".__add__).filter(lambda path: "_escaped_fragment_" not in path)
# Made of the pieces that matter here, so that ugly URLs and near misses are common.
pieces = st.lists(
    st.sampled_from("/?&=#!+%a \u043f\udcff\ud800")
    | st.sampled_from(["#!", "%25", "%FF", "%d0", "%BF", "_escaped_fragment_"])
    | st.sampled_from([UGLY_TOKEN, f"?{UGLY_TOKEN}", f"&{UGLY_TOKEN}"])
).map("".join)


@pytest.mark.parametrize(
    ("target", "pretty"),
    [
        pytest.param("/?_escaped_fragment_=", "/", id="empty token"),
        pytest.param("/p?_escaped_fragment_=key=value", "/p#!key=value", id="key and value"),
        pytest.param("/p?a=1&_escaped_fragment_=k", "/p?a=1#!k", id="after a parameter"),
        pytest.param("/p?a=1&_escaped_fragment_=", "/p?a=1", id="empty token after a parameter"),
        pytest.param("/?_escaped_fragment_=k1=v1%26k2=v2", "/#!k1=v1&k2=v2", id="escaped ampersand"),
        pytest.param("/?_escaped_fragment_=a%2526b", "/#!a%26b", id="escaped percent sign"),
        pytest.param("/?_escaped_fragment_=a+b%2Bc%20d", "/#!a+b+c%20d", id="plus and space"),
        pytest.param("/?_escaped_fragment_=%D0%BF", "/#!%D0%BF", id="UTF-8"),
        pytest.param("/?_escaped_fragment_=%d0%bf", "/#!%D0%BF", id="UTF-8 in lower case"),
        pytest.param("/?_escaped_fragment_=%FF", "/#!%FF", id="no UTF-8"),
        pytest.param("/?_escaped_fragment_=%ff%D0", "/#!%FF%D0", id="each octet, upper case"),
        pytest.param("/?_escaped_fragment_=%ED%A0%80", "/#!%ED%A0%80", id="surrogate"),
        pytest.param("/?_escaped_fragment_=%zz", "/#!%zz", id="malformed"),
        pytest.param("/?_escaped_fragment_=%", "/#!%", id="cut off"),
        pytest.param("/?_escaped_fragment_=%4", "/#!%4", id="cut off later"),
        pytest.param("/?_escaped_fragment_=%0d%0aX:1", "/#!%0D%0AX:1", id="line ends"),
        pytest.param("/?_escaped_fragment_=%00", "/#!%00", id="NUL"),
        pytest.param("/?b=2&a=1&a=%2F&c&_escaped_fragment_=", "/?b=2&a=1&a=%2F&c", id="their order"),
        pytest.param("/a%2Fb;p//c/../d?_escaped_fragment_=", "/a%2Fb;p//c/../d", id="path as it is"),
        pytest.param(
            "/?_escaped_fragment_=\"><script>alert('1')</script>",
            "/#!%22%3E%3Cscript%3Ealert('1')%3C/script%3E",
            id="markup",
        ),
        pytest.param("/?_escaped_fragment_=a?b", "/#!a?b", id="question mark in the value"),
        pytest.param("/?_escaped_fragment_=a=b=", "/#!a=b=", id="equals signs in the value"),
        pytest.param("/?_escaped_fragment_=!", "/#!!", id="exclamation mark in the value"),
        pytest.param("/?_escaped_fragment_=//evil", "/#!//evil", id="two slashes"),
        pytest.param("//evil?_escaped_fragment_=", "//evil", id="two slashes in the path"),
        pytest.param("/??_escaped_fragment_=&_escaped_fragment_=a", "/??_escaped_fragment_=#!a",
                     id="another name: it begins with a question mark"),
        pytest.param("/?x_escaped_fragment_=1&_escaped_fragment_=a", "/?x_escaped_fragment_=1#!a",
                     id="another name: it begins with x"),
        pytest.param("/?%5Fescaped_fragment_=1&_escaped_fragment_=a",
                     "/?%5Fescaped_fragment_=1#!a", id="another name: it is escaped"),
        pytest.param("/p_escaped_fragment_=?_escaped_fragment_=a", "/p_escaped_fragment_=#!a",
                     id="name in the path"),
    ],
)  # fmt: skip
def test_ugly_target_asks_for_a_pretty_url(target: str, pretty: str) -> None:
    assert str(ugly_to_pretty(target)) == pretty


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("/", id="normal"),
        pytest.param("*", id="asterisk form"),
        pytest.param("", id="empty"),
        pytest.param("/?_ESCAPED_FRAGMENT_=", id="upper case"),
        pytest.param("/?%5Fescaped_fragment_=", id="escaped name"),
        pytest.param("/?_escaped_fragment_%3D", id="equals sign"),
        pytest.param("/%3F_escaped_fragment_=", id="question mark"),
        pytest.param("/?x_escaped_fragment_=1", id="longer name"),
        pytest.param("/?a=_escaped_fragment_=1", id="in a value"),
        pytest.param("/_escaped_fragment_=1", id="in the path"),
        pytest.param("/&_escaped_fragment_=1", id="in the path, after &"),
        pytest.param("/??_escaped_fragment_=1", id="second question mark"),
        pytest.param("/?a;_escaped_fragment_=1", id="semicolon"),
        pytest.param("/?_escaped_fragment_=1&_escaped_fragment_=2", id="two tokens"),
        pytest.param("/?_escaped_fragment_&_escaped_fragment_=2", id="bare name"),
        pytest.param("/?_escaped_fragment_=1&_escaped_fragment_", id="bare name last"),
        pytest.param("/?_escaped_fragment_=a&utm=1", id="not last"),
        pytest.param("/?_escaped_fragment_=a&", id="empty parameter"),
        pytest.param("/?_escaped_fragment_", id="no equals sign"),
        pytest.param("/a#b?_escaped_fragment_=c", id="fragment before the query"),
        pytest.param("/a?_escaped_fragment_=b#c", id="fragment after the query"),
    ],
)
def test_target_is_not_ugly(target: str) -> None:
    assert ugly_to_pretty(target) is None


@pytest.mark.parametrize(
    ("target", "pretty"),
    [
        ("/a?_escaped_fragment_=", "/a"),
        ("/a?x=1&_escaped_fragment_=", "/a?x=1"),
        ("/a?_escaped_fragment_=k=v", "/a#!k=v"),
        ("/a?_escaped_fragment_=%2Fp%3Fa%3D1%26b%3D2", "/a#!/p?a=1&b=2"),
        ("/a?x=1&_escaped_fragment_=%2Fp%26q%3D2", "/a?x=1#!/p&q=2"),
        ("/a?_escaped_fragment_=key1=value1%26key2=value2", "/a#!key1=value1&key2=value2"),
        ("/a?_escaped_fragment_=a%2Bb%20c", "/a#!a+b%20c"),
        ("/a?_escaped_fragment_=x%2523y", "/a#!x%23y"),
        ("/a?_escaped_fragment_=http%3A%2F%2Fw%2Faura%23E", "/a#!http://w/aura#E"),
        ("/a?flag&_escaped_fragment_=", "/a?flag"),
        ("/?&_escaped_fragment_=", "/?"),
    ],
)
def test_vectors_that_peers_get_wrong(target: str, pretty: str) -> None:
    """Cases that other implementations of the scheme get wrong."""
    assert str(ugly_to_pretty(target)) == pretty


@pytest.mark.parametrize(
    "target",
    [
        "/a%2Fb?q=1",
        "/?brand=H%26M&size=S",
        "/?q=100%25",
        "/?q=a%2Bb",
        "/x?a=1?b=2",
        "/?q=a+b",
        "/%E3%83%86%E3%82%B9%E3%83%88",
    ],
)
def test_vectors_that_peers_change(target: str) -> None:
    """Cases that other implementations rewrite: alone, and as the page of an ugly URL."""
    assert ugly_to_pretty(target) is None
    ugly = pretty_to_ugly(f"{target}#!k")
    assert ugly is not None
    assert ugly_to_pretty(ugly) == PrettyURL(target, "k")


def test_undecodable_octets_of_the_path_survive() -> None:
    raw = b"/caf\xe9?q=\xff&\xd0\xbf"
    target = (raw + b"&_escaped_fragment_=").decode("utf-8", "surrogateescape")
    pretty = ugly_to_pretty(target)
    assert pretty is not None
    assert str(pretty).encode("utf-8", "surrogateescape") == raw


def test_raw_octets_of_the_value_count_like_escaped_ones() -> None:
    for raw in (b"\xd0\xbf", b"%D0%BF", b"\xd0%BF", b"%d0\xbf"):
        target = (b"/?_escaped_fragment_=" + raw).decode("utf-8", "surrogateescape")
        assert ugly_to_pretty(target) == PrettyURL("/", "\u043f")
    assert ugly_to_pretty("/?_escaped_fragment_=\udcff") == PrettyURL("/", "%FF")


@pytest.mark.parametrize(
    ("url", "ugly"),
    [
        ("/#!key=value", "/?_escaped_fragment_=key=value"),
        ("http://h/p#!k", "http://h/p?_escaped_fragment_=k"),
        ("http://h#!k", "http://h?_escaped_fragment_=k"),
        ("/p?a=1#!k1=v1&k2=v2", "/p?a=1&_escaped_fragment_=k1=v1%26k2=v2"),
        ("/p?#!x", "/p?&_escaped_fragment_=x"),
        ("/p?a?b#!x", "/p?a?b&_escaped_fragment_=x"),
        ("/p#!a?b", "/p?_escaped_fragment_=a?b"),
        ("/p#!a#!b", "/p?_escaped_fragment_=a%23!b"),
        ("/p#!!", "/p?_escaped_fragment_=!"),
        ("/p#!100% a+b", "/p?_escaped_fragment_=100%25%20a%2Bb"),
        ("/p#!a%20b", "/p?_escaped_fragment_=a%2520b"),
        ("/p#!\u043f\U0001f600", "/p?_escaped_fragment_=%D0%BF%F0%9F%98%80"),
        ("/p#!\udcff\ud800", "/p?_escaped_fragment_=%FF%EF%BF%BD"),
        ("/p#!", "/p?_escaped_fragment_="),
        ("/\u043f/%d0?\u043f#!x", "/\u043f/%d0?\u043f&_escaped_fragment_=x"),
        # Nothing to crawl: no hash-bang fragment, or not a pretty URL.
        ("/p", None),
        ("", None),
        ("/p#", None),
        ("/p#x", None),
        ("/p# !x", None),
        ("/p#%21x", None),
        ("/p?!x", None),
        ("/p?_escaped_fragment_=a#!b", None),
        ("/p?_escaped_fragment_&x#!b", None),
    ],
)
def test_crawler_requests_the_ugly_url(url: str, ugly: str | None) -> None:
    assert pretty_to_ugly(url) == ugly


@pytest.mark.parametrize(
    ("url", "ugly"),
    [
        ("/", "/?_escaped_fragment_="),
        ("/p?a=1", "/p?a=1&_escaped_fragment_="),
        ("/p?", "/p?&_escaped_fragment_="),
        ("/p#!k", "/p?_escaped_fragment_=k"),
        ("/p#", None),
        ("/p#x", None),
        ("/p?_escaped_fragment_=", None),
    ],
)
def test_crawler_requests_an_opted_in_page(url: str, ugly: str | None) -> None:
    assert pretty_to_ugly(url, opted_in=True) == ugly


def test_the_crawler_escapes_exactly_the_characters_of_the_scheme() -> None:
    escaped = {*range(0x21), 0x23, 0x25, 0x26, 0x2B, *range(0x7F, 0x100)}
    for code_point in range(0x100):
        character = chr(code_point)
        in_utf8 = "".join(f"%{octet:02X}" for octet in character.encode())
        expected = in_utf8 if code_point in escaped else character
        assert pretty_to_ugly(f"/#!{character}") == f"/?_escaped_fragment_={expected}"


def test_location_hash_escapes_exactly_the_fragment_percent_encode_set() -> None:
    escaped = {*range(0x21), *map(ord, '"<>`'), *range(0x7F, 0x100)}
    for code_point in range(0x100):
        character = chr(code_point)
        in_utf8 = "".join(f"%{octet:02X}" for octet in character.encode())
        expected = in_utf8 if code_point in escaped else character
        assert PrettyURL("/", character).location_hash == f"#!{expected}"
    assert PrettyURL("/", "").location_hash == ""
    assert PrettyURL("/", "\udc80\udcff").location_hash == "#!%80%FF"
    for stray in "\ud800\udc7f\udd00\udfff":
        assert PrettyURL("/", stray).location_hash == "#!%EF%BF%BD"


@given(untokened_paths, unicode_text.filter(bool))
@example("/p?", "x")
@example("/", "%25&+#?=\x00\x7f")
def test_pretty_to_ugly_to_pretty_is_the_identity(path: str, fragment: str) -> None:
    ugly = pretty_to_ugly(f"{path}#!{fragment}")
    assert ugly is not None
    assert "#" not in ugly
    assert ugly.isascii()
    assert ugly_to_pretty(ugly) == PrettyURL(path, fragment)


@given(untokened_paths)
def test_an_opted_in_page_comes_back_without_a_hash(path: str) -> None:
    ugly = pretty_to_ugly(path, opted_in=True)
    assert ugly is not None
    assert str(ugly_to_pretty(ugly)) == path


@given(pieces | any_text, st.booleans())
def test_every_url_the_crawler_requests_is_understood(url: str, opted_in: bool) -> None:
    ugly = pretty_to_ugly(url, opted_in=opted_in)
    if ugly is not None:
        pretty = ugly_to_pretty(ugly)
        assert pretty is not None
        assert pretty.path == url.partition("#")[0]


ugly_targets = st.builds(
    "{}{}_escaped_fragment_={}".format,
    st.sampled_from(["/", "/a", "/a!", "/%61", "//a", "/\udcff"]),
    st.sampled_from(["?", "?&", "?a&", "??a&", "?a&&", "?a=1&"]),
    st.text(st.sampled_from("ab%+ 25Fdf0B<\udcff\udcd0\u043f"))
    | octets.filter(lambda value: not set("#&") & set(value)),
)


def navigated_to(target: str) -> tuple[str, str]:
    """The path and location.hash of an ugly target, computed octet by octet."""
    head, _, value = target.rpartition(UGLY_TOKEN)
    unescaped = unquote_to_bytes(value.encode("utf-8", "surrogateescape"))
    hash_ = "".join(
        chr(octet) if chr(octet) in VISIBLE and chr(octet) not in '"<>`' else f"%{octet:02X}"
        for octet in unescaped
    )
    return head[:-1], f"#!{hash_}" if hash_ else ""


@given(ugly_targets)
def test_every_ugly_target_leads_to_its_path_and_hash(target: str) -> None:
    pretty = ugly_to_pretty(target)
    assert pretty is not None
    assert (pretty.path, pretty.location_hash) == navigated_to(target)


@given(ugly_targets, ugly_targets)
@example("/?_escaped_fragment_=a", "/?&_escaped_fragment_=a")
@example("/?_escaped_fragment_=a", "/?_escaped_fragment_=%61")
@example("/?_escaped_fragment_=%2561", "/?_escaped_fragment_=%61")
@example("/?_escaped_fragment_=%25FF", "/?_escaped_fragment_=%FF")
def test_different_pages_never_share_a_pretty_url(first: str, second: str) -> None:
    """Equal text means an equal page, and so an equal value."""
    one, other = ugly_to_pretty(first), ugly_to_pretty(second)
    same_page = navigated_to(first) == navigated_to(second)
    assert (str(one) == str(other)) == same_page
    assert same_page or one != other


@given(pieces | any_text | octets)
def test_no_text_raises(text: str) -> None:
    for template in ("{}", "/?_escaped_fragment_={}", "/?{}&_escaped_fragment_="):
        if (pretty := ugly_to_pretty(template.format(text))) is not None:
            assert pretty.location_hash.isascii()
            assert str(pretty) == pretty.path + pretty.location_hash
    pretty_to_ugly(text)
    pretty_to_ugly(f"/#!{text}")
    pretty_to_ugly(text, opted_in=True)


@given(any_text | octets)
def test_location_hash_is_stable(fragment: str) -> None:
    """A browser does not escape its own escapes, so the hash can be navigated to."""
    escaped = PrettyURL("/", fragment).location_hash
    assert PrettyURL("/", escaped.removeprefix("#!")).location_hash == escaped
