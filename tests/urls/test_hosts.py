"""Host patterns in settings: what is valid, and what they match."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.urls.hosts import Hosts, host_of, parse

MATCHING = [
    ("www.example.com", "www.example.com", 443),
    ("WWW.Example.com", "www.example.COM", 80),
    ("www.example.com", "www.example.com.", 443),
    ("app", "app", 80),
    ("my_app.internal", "my_app.internal", 80),
    ("bücher.example", "xn--bcher-kva.example", 443),
    ("*.example.com", "example.com", 443),
    ("*.example.com", "a.example.com", 443),
    ("*.example.com", "a.b.example.com", 443),
    ("10.1.2.3", "10.1.2.3", 80),
    ("10.1.0.0/16", "10.1.2.3", 80),
    ("fd00::/8", "[fd12::1]", 80),
    ("[fd12::1]", "fd12::1", 80),
    ("http://app.internal:3001", "app.internal", 3001),
    ("https://app.internal:8443/", "app.internal", 8443),
    ("http://127.0.0.1:3001", "127.0.0.1", 3001),
    ("http://[::1]:3001", "[::1]", 3001),
    ("https://app.internal", "app.internal", 443),
]
OTHERS = [
    ("www.example.com", "example.com", 443),
    ("www.example.com", "a.www.example.com", 443),
    ("www.example.com", "www.example.com.evil.example", 443),
    ("*.example.com", "badexample.com", 443),
    ("*.example.com", "com", 443),
    ("10.1.0.0/16", "10.2.0.1", 80),
    ("10.1.0.0/16", "fd12::1", 80),
    ("10.1.2.3", "10.1.2.3.example.com", 80),
    ("http://app.internal:3001", "app.internal", 3002),
    ("http://app.internal:3001", "app.internal", 80),
    ("http://127.0.0.1:3001", "127.0.0.1", 80),
]
MISTAKES = [
    "",
    "*",
    "*.",
    "a..b",
    "a b",
    "-a.example",
    "example.com/path",
    "example.com:8080",
    "user@example.com",
    "*.*.example.com",
    "ex*mple.com",
    "10.1.0.0/33",
    "10.1.2.3/16",
    "256.1.1.1",
    "127.1",
    "ftp://example.com",
    "http://",
    "http://a.example/path",
    "http://a b",
    "http://a\tb",
    "http://user:secret@a.example",
    "http://*.example.com:81",
    "http://a.example:99999",
    "x" * 64 + ".example",
]


@pytest.mark.parametrize(("entry", "host", "port"), MATCHING)
def test_matching(entry: str, host: str, port: int) -> None:
    assert Hosts([entry]).named(host, port)
    assert Hosts(["other.example", entry, "192.0.2.0/24"]).named(host, port)


@pytest.mark.parametrize(("entry", "host", "port"), OTHERS)
def test_others(entry: str, host: str, port: int) -> None:
    assert not Hosts([entry]).named(host, port)
    assert not Hosts().named(host, port)


@pytest.mark.parametrize("entry", MISTAKES)
def test_mistakes(entry: str) -> None:
    with pytest.raises(ValueError, match=r"is not|must") as caught:
        parse(entry)
    assert "secret" not in str(caught.value)


@given(entry=st.text(max_size=30))
def test_any_text_is_an_entry_or_a_mistake(entry: str) -> None:
    try:
        hosts = Hosts([entry])
    except ValueError:
        return
    assert not hosts.named("not.listed.invalid", 9)


LABELS = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), min_size=1, max_size=4)


@given(labels=LABELS, below=LABELS)
def test_domains_and_hosts(labels: list[str], below: list[str]) -> None:
    name, deeper = ".".join(labels), ".".join(below + labels)
    assert Hosts([name]).named(name, 80)
    assert not Hosts([name]).named(deeper, 80)
    assert Hosts([f"*.{name}"]).named(name, 80)
    assert Hosts([f"*.{name}"]).named(deeper, 80)
    assert not Hosts([f"*.{name}"]).named(f"x{name}", 80)


def test_addresses() -> None:
    hosts = Hosts(["10.1.0.0/16", "fd00::/8", "a.example"])
    assert hosts.has_address(ip_address("10.1.255.255"))
    assert hosts.has_address(ip_address("fdff::1"))
    assert not hosts.has_address(ip_address("10.2.0.0"))


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("WWW.example.com", "www.example.com"),
        ("www.example.com.:8080", "www.example.com"),
        ("[::1]", "::1"),
        ("[::1]:80", "::1"),
        ("app:", "app"),
        (":80", ""),
        ("", ""),
    ],
)
def test_the_host_of_an_authority(authority: str, host: str) -> None:
    assert host_of(authority) == host
