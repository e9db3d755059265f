"""The addresses that pages may reach."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.gateway.address_policy import AddressPolicy, Forbidden, is_public
from prerender.urls.hosts import Hosts

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.15",
    "168.63.129.17",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "192.167.255.255",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    # Others' notation for public IPv4 addresses: mapped, NAT64, 6to4.
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]
NOT_PUBLIC = [
    # This host, this network
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "::1",
    "127.0.0.1",
    "127.255.255.254",
    # Private networks
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "fc00::1",
    "fd12:3456:789a::1",
    "fec0::1",
    # Carrier-grade NAT; a cloud's metadata at 100.100.100.200
    "100.64.0.0",
    "100.100.100.200",
    "100.127.255.255",
    # Link-local, with the metadata services of clouds
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "fe80::1",
    "fe80::1%1",
    "fd00:ec2::254",
    # Protocol assignments, with another cloud's metadata
    "192.0.0.1",
    "192.0.0.192",
    "192.88.99.1",
    # Azure's settings of the machine (WireServer), at an address that others could route
    "168.63.129.16",
    # Benchmarks and documentation
    "198.18.0.1",
    "198.19.255.255",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "2001:db8::1",
    "2001:2::1",
    "3fff::1",
    # Multicast, reserved, broadcast
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "ff02::1",
    "ff0e::1",
    # Not given out to anybody, discarded, segment routing
    "100::1",
    "4000::1",
    "5f00::1",
    # Addresses in addresses: mapped, compatible, translated, NAT64, local NAT64, 6to4, Teredo, ORCHID
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::8.8.8.8",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "::ffff:168.63.129.16",
    "64:ff9b::168.63.129.16",
    "2002:a83f:8110::1",
    "2001:0:808:808::1",
    "2001:20::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(ip_address(address))
    AddressPolicy().check(address, 80)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_not_public(address: str) -> None:
    assert not is_public(ip_address(address))
    with pytest.raises(Forbidden):
        AddressPolicy().check(address, 80)


@given(address=st.ip_addresses())
def test_no_notation_makes_an_address_public(address: object) -> None:
    text = str(address)
    for prefix in ("::ffff:", "64:ff9b::") if ":" not in text else ():
        assert is_public(ip_address(prefix + text)) == is_public(ip_address(text))


@pytest.mark.parametrize(
    "host",
    ["2130706433", "127.1", "127.0.0.1.", "010.0.0.1", "1.2.3", "1.2.3.4.5", "::1::", "a:b"],
)
def test_odd_notations(host: str) -> None:
    """The client does not resolve them, but the system would, mostly to the loopback interface."""
    with pytest.raises(Forbidden, match="not a canonical address"):
        AddressPolicy().check(host, 80)


@pytest.mark.parametrize("host", ["example.com", "localhost", "0x7f.1", "1.example", "a_b.c", ""])
def test_names_are_left_to_the_resolver(host: str) -> None:
    AddressPolicy().check(host, 80)


@pytest.mark.parametrize("only_listed", [False, True])
@pytest.mark.parametrize(
    ("entry", "port", "passes"),
    [
        ("api.example", 443, True),
        ("api.example", 6379, False),
        ("*.example", 80, True),
        ("*.example", 8080, False),
        ("10.1.0.0/16", 80, True),
        ("10.1.0.0/16", 8080, False),
        ("http://api.example:8080", 8080, True),
        ("http://api.example:8080", 80, False),
    ],
)
def test_listed_private_addresses(entry: str, port: int, passes: bool, only_listed: bool) -> None:
    """Beside a listed host there may be databases: only an origin opens other ports."""
    policy = AddressPolicy(Hosts([entry]), only_listed=only_listed)
    assert policy.lets_pass(ip_address("10.1.2.3"), "api.example", port) is passes


def test_own_host_at_any_port() -> None:
    policy = AddressPolicy(Hosts(["10.1.0.0/16"]), own_host="www.example")
    assert policy.lets_pass(ip_address("8.8.8.8"), "www.example", 8443)
    assert policy.lets_pass(ip_address("10.1.2.3"), "www.example", 8443)
    assert not policy.lets_pass(ip_address("10.2.2.3"), "www.example", 8443)
