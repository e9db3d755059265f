"""Types of settings that name places: addresses, hosts, networks and URLs.

Each check raises ValueError with what is allowed.
"""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from prerender.config import store_urls
from prerender.config.lists import items_of, strings_of
from prerender.urls import hosts
from prerender.urls.addresses import url_of
from prerender.urls.hosts import Network, Origin, address_and_port

_HOST_NAME = re.compile(r"[a-z0-9._-]{1,253}", re.ASCII | re.IGNORECASE)


def _hosts(value: object) -> tuple[str, ...]:
    """Hosts, domains, networks and origins (prerender/urls/hosts.py)."""
    entries = strings_of(
        value, 'give a list of hosts, for example ["cdn.example.com", "*.ads.example"]'
    )
    for entry in entries:
        hosts.parse(entry)
    return entries


def _hosts_at_any_port(value: object) -> tuple[str, ...]:
    entries = _hosts(value)
    for entry in entries:
        if isinstance(origin := hosts.parse(entry), Origin):
            raise ValueError(f'{entry!r}: give the host without scheme and port: "{origin.host}"')
    return entries


def _host_names(value: object) -> tuple[str, ...]:
    names = strings_of(value, 'give a list of host names, for example ["prerender.internal"]')
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a host name; give it without scheme and port")
    return names


def _nameservers(value: object) -> tuple[str, ...]:
    help_text = 'give a list of addresses, for example ["10.0.0.2", "127.0.0.1:5353", "[::1]:53"]'
    texts = strings_of(value, help_text)
    for text in texts:
        try:
            address_and_port(text)
        except ValueError:
            raise ValueError(f"{text!r}: {help_text}") from None
    return texts


def _networks(value: object) -> tuple[Network, ...]:
    """Networks or single addresses."""
    help_text = 'give a list of networks, for example ["10.0.0.0/8", "192.168.1.7", "fd00::/8"]'
    networks = []
    for item in items_of(value, help_text):
        if not isinstance(item, str | IPv4Network | IPv6Network):
            raise ValueError(help_text)
        try:
            networks.append(ip_network(item))
        except ValueError as error:
            raise ValueError(f"{item!r} is not a network: {error}") from None
    return tuple(networks)


def _address(value: str) -> str:
    address = value.strip()
    # An empty address would listen on all addresses.
    if not address or not address.isprintable() or re.search(r"[\s/@]", address):
        raise ValueError('give an address to listen on, for example "127.0.0.1" or "0.0.0.0"')
    return address


def _site_url(value: str) -> str:
    """An absolute http(s) URL of a site: scheme, host and optional port, nothing else."""
    text = value.strip()
    try:
        url = url_of(text, encoded=False)
        explicit = url.scheme in ("http", "https") and bool(url.host) and bool(url.port)
    except ValueError:
        explicit = False
    if not explicit or " " in text or not text.isprintable():
        raise ValueError('not the URL of a site: give for example "http://127.0.0.1:3000"')
    if url.user is not None or url.password is not None:
        raise ValueError("must not contain a user name or password")
    if url.path not in ("", "/") or url.query_string or url.fragment:
        raise ValueError("must be scheme, host and port only, with no path, query or fragment")
    return str(url.origin())


def _site_url_or_nothing(value: str) -> str:
    return _site_url(value) if value else ""


def _endpoint(value: str) -> str:
    """An absolute http(s) URL of an API."""
    text = value.strip()
    try:
        url = url_of(text)
        known = url.scheme in ("http", "https") and bool(url.host) and bool(url.port)
    except ValueError:
        known = False
    if not known or not text.isprintable() or " " in text:
        raise ValueError('not a URL: give for example "https://example.com/path"')
    if "@" in url.raw_authority:
        raise ValueError("must not contain a user name or password")
    return text


def _endpoint_or_nothing(value: str) -> str:
    return _endpoint(value) if value else ""


BindAddress = Annotated[str, AfterValidator(_address)]
HostNames = Annotated[tuple[str, ...], BeforeValidator(_host_names)]
HostList = Annotated[tuple[str, ...], BeforeValidator(_hosts)]
HostsAtAnyPort = Annotated[tuple[str, ...], BeforeValidator(_hosts_at_any_port)]
Networks = Annotated[tuple[Network, ...], BeforeValidator(_networks)]
Nameservers = Annotated[tuple[str, ...], BeforeValidator(_nameservers)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
EndpointOrNothing = Annotated[str, AfterValidator(_endpoint_or_nothing)]
SiteURL = Annotated[str, AfterValidator(_site_url)]
SiteURLOrNothing = Annotated[str, AfterValidator(_site_url_or_nothing)]
StoreURL = Annotated[str, AfterValidator(store_urls.checked)]
RedisURLOrNothing = Annotated[str, AfterValidator(store_urls.redis_or_nothing)]
