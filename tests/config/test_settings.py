"""Settings: their sources, which one wins, and the errors for invalid values."""

import json
import math
import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.admin.token_file import TokenFile
from prerender.config import Settings, load
from prerender.config.example import example
from prerender.config.settings import ServerSettings
from prerender.crawlers import known
from prerender.crawlers.ranges import RangesFile
from prerender.errors import ConfigError
from tests.support.commands import ROOT

EXAMPLE = ROOT / "config.example.toml"
ORIGIN = {"PRERENDER_ORIGIN_URL": "http://app:3000"}
# If a setting is listed here, an empty value has a meaning.
MAY_BE_EMPTY = {
    ("site", "url"),
    ("cache", "hot_url"),
    ("browser", "path"),
    ("triggers", "crawlers_file"),
    ("admin", "token"),
    ("admin", "token_file"),
    ("tracing", "endpoint"),
    ("drop_in", "token"),
    ("indexnow", "key"),
    ("webhooks", "url"),
    ("markdown", "content_signal"),
    ("cdn", "zone"),
    ("cdn", "token"),
    ("cdn", "token_file"),
    ("cdn", "endpoint"),
}


def all_settings() -> dict[tuple[str, str], str]:
    """The description of every setting, by its section and key."""
    found = {}
    for section, part in Settings.model_fields.items():
        assert part.annotation is not None
        for key, field in part.annotation.model_fields.items():
            found[section, key] = field.description or ""
    return found


def variable(section: str, key: str) -> str:
    return f"PRERENDER_{section}_{key}".upper()


def written(folder: Path, text: str | bytes) -> Path:
    file = folder / "settings.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def problems(file: Path | None = None, environ: Mapping[str, str] = ORIGIN) -> list[str]:
    """The errors of ``load``, one line each."""
    with pytest.raises(ConfigError) as caught:
        load(file, environ)
    assert all(problem.isprintable() for problem in caught.value.problems)
    return caught.value.problems


def problem(file: Path | None = None, environ: Mapping[str, str] = ORIGIN) -> str:
    (only,) = problems(file, environ)
    return only


def test_the_example_has_every_setting_with_its_default() -> None:
    content = tomllib.loads(EXAMPLE.read_text("utf-8"))
    settings = [(section, key) for section, keys in content.items() for key in keys]
    assert settings == list(all_settings())
    defaults = load(None, {"PRERENDER_ORIGIN": content["origin"]["url"]})
    assert load(EXAMPLE, {}) == defaults


def test_every_setting_is_explained_and_the_example_is_up_to_date() -> None:
    """``make docs`` writes it."""
    assert all(all_settings().values())
    assert EXAMPLE.read_text("utf-8") == example()


def test_environment_over_file_over_default(tmp_path: Path) -> None:
    file = written(tmp_path, "[origin]\nurl = 'http://a:1'\n[cache]\nttl = 60\n[server]\nport = 1")
    environ = {"PRERENDER_SERVER_PORT": "2", "PATH": "/bin", "prerender_server_host": "ignored"}
    settings = load(file, environ)
    assert settings.origin.url == "http://a:1"
    assert settings.cache.ttl == 60
    assert settings.server.port == 2
    assert settings.server.host == "127.0.0.1"
    assert load(file, environ, {"server": {"port": 3}}).server.port == 3


def test_the_environment_of_the_process_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRERENDER_ORIGIN_URL", "http://later:1")
    assert load().origin.url == "http://later:1"


def test_the_short_name_of_the_origin(tmp_path: Path) -> None:
    file = written(tmp_path, "[origin]\nurl = 'http://file:1'")
    short = {"PRERENDER_ORIGIN": "http://short:1"}
    assert load(file, short).origin.url == "http://short:1"
    assert load(file, short | ORIGIN).origin.url == "http://app:3000"
    assert "(from PRERENDER_ORIGIN)" in problem(None, {"PRERENDER_ORIGIN": "short"})


def test_the_public_url_is_the_origin_unless_it_is_given() -> None:
    assert str(load(None, ORIGIN).public_url) == "http://app:3000"
    settings = load(None, ORIGIN | {"PRERENDER_SITE_URL": "https://www.example.com/"})
    assert str(settings.public_url) == "https://www.example.com"
    assert str(settings.origin_url) == "http://app:3000"


WHOLE_PORT = "give a whole number from 0 to 65535"
WHOLE_PAGES = 'give a whole number from 1 to 256, or "auto"'
A_DURATION = 'not a duration: give seconds, or for example "30s", "10m", "1h"'
A_SIZE = 'not a size: give bytes, or for example "64KiB", "256MiB", "1GB"'
A_SITE = 'not the URL of a site: give for example "http://127.0.0.1:3000"'
SITE_ONLY = "must be scheme, host and port only, with no path, query or fragment"
A_HEADER = (
    'number 1 is not "Name: value" in ASCII; give a list of headers, for example '
    '["Authorization: Basic dXNlcjpwYXNz"]'
)
OF_THE_PROXY = "the proxy and the browser set it themselves"
A_FLAG = "give true or false"
PATTERNS = 'give a list of regular expressions, for example ["build [0-9]+", "token=[0-9a-f]+"]'
HOSTS = 'give a list of hosts, for example ["cdn.example.com", "*.ads.example"]'
A_HOST = """'a.example/b' is not a network: give a host ("cdn.example.com"), a domain """ + (
    """("*.example.com"), a network ("10.1.0.0/16") or an origin ("http://app.internal:3001")"""
)
NETWORKS = 'give a list of networks, for example ["10.0.0.0/8", "192.168.1.7", "fd00::/8"]'
HOST_BITS = "'10.0.0.1/8' is not a network: 10.0.0.1/8 has host bits set"
PARAMETERS = 'give a list of query parameter names, for example ["utm_*", "ref"]'
SECRETS = 'give a list of query parameter names, for example ["*token*", "key"]'
AN_ENDPOINT = 'not a URL: give for example "https://example.com/path"'
RULES = 'give a list of tables, for example [{ path = "/news/*", ttl = "5m" }]'
REDIS_FORMS = (
    '"redis://user:password@host:6379/0", "rediss://...", "unix:///run/redis.sock?db=0", '
    '"redis+cluster://host:6379,host:6379"'
)
A_SENTINEL = '"redis+sentinel://host:26379,host:26379/primary"'
REDIS = f"{REDIS_FORMS} or {A_SENTINEL}"
STORES = (
    f'"memory://", "file:///var/cache/prerender", {REDIS_FORMS}, {A_SENTINEL}, '
    '"aiocache://aiocache.MemcachedCache?endpoint=127.0.0.1", "s3://bucket/prefix", '
    '"gs://bucket/prefix" or "az://container/prefix?account_name=NAME"'
)
A_FOLDER = "give the path of a folder after file://, such as file:///var/cache/prerender"
A_HOST_AND_PORT = "a host or port after redis:// is invalid"
A_DATABASE = "after the host of redis://, give the number of a database, such as /0"
A_PRIMARY = "after the host of redis+sentinel://, give the name of the primary, such as /primary"
A_PASSWORD = "percent-encode special characters in the password"
NO_URL = "not a URL: percent-encode special characters in a password"
AN_ADDRESS = 'give an address to listen on, for example "127.0.0.1" or "0.0.0.0"'


@pytest.mark.parametrize(
    ("setting", "value", "shown", "allowed"),
    [
        ("[server] port", "65536", "65536", WHOLE_PORT),
        ("[server] port", "-1", "-1", WHOLE_PORT),
        ("[server] port", "1.5", "1.5", WHOLE_PORT),
        ("[server] port", "nan", "nan", WHOLE_PORT),
        ("[server] port", "true", "True", WHOLE_PORT),
        ("[server] port", "'http'", "'http'", WHOLE_PORT),
        ("[server] port", "[80]", "[80]", WHOLE_PORT),
        ("[server] port", "{ a = 80 }", "{'a': 80}", WHOLE_PORT),
        ("[server] host", "''", "''", AN_ADDRESS),
        ("[server] host", "'http://127.0.0.1'", "'http://127.0.0.1'", AN_ADDRESS),
        ("[server] host", "'10.0.0.0/8'", "'10.0.0.0/8'", AN_ADDRESS),
        ("[server] host", "'a b'", "'a b'", AN_ADDRESS),
        ("[server] host", "80", "80", "give a string"),
        ("[browser] queue", "true", "True", "give a whole number from 0 to 100000"),
        ("[browser] pages", "0", "0", WHOLE_PAGES),
        ("[browser] pages", "257", "257", WHOLE_PAGES),
        ("[browser] pages", "true", "True", WHOLE_PAGES),
        ("[browser] pages", "'many'", "'many'", WHOLE_PAGES),
        ("[browser] max_renders", "-1", "-1", "give a whole number from 0 to 1000000000"),
        ("[cache] stale", "'old'", "'old'", A_DURATION),
        ("[browser] max_memory", "'much'", "'much'", f'{A_SIZE}, or "auto"'),
        (
            "[browser] timezone",
            "'Paris'",
            "'Paris'",
            "give a name of the IANA time zone database, such as Europe/Paris",
        ),
        ("[browser] sandbox", "true", "True", 'give "auto", "on" or "off"'),
        ("[browser] path", "false", "False", "give a string"),
        ("[cache] ttl", "-1", "-1", "must be from 0 to 365d"),
        ("[cache] ttl", "'366d'", "'366d'", "must be from 0 to 365d"),
        ("[cache] ttl", "1e99", "1e+99", "must be from 0 to 365d"),
        ("[cache] ttl", "nan", "nan", "must be from 0 to 365d"),
        ("[cache] ttl", "inf", "inf", "must be from 0 to 365d"),
        ("[cache] ttl", "9" * 400, "9" * 77 + "...", "must be from 0 to 365d"),
        ("[cache] ttl", "true", "True", A_DURATION),
        ("[cache] ttl", "'1 week'", "'1 week'", A_DURATION),
        ("[cache] ttl", "'-5s'", "'-5s'", A_DURATION),
        ("[cache] ttl", "'٣'", "'٣'", A_DURATION),
        ("[cache] ttl", "1979-05-27", "datetime.date(1979, 5, 27)", A_DURATION),
        ("[render] timeout", "0", "0", "must be more than 0"),
        ("[render] budget", "'0s'", "'0s'", "must be more than 0"),
        ("[cache] stale", "-1", "-1", "must be from 0 to 365d"),
        ("[cache] timeout", "0", "0", "must be more than 0"),
        ("[cache] page_ttl", "1", "1", A_FLAG),
        ("[cache] url", "'memory'", "***", "give memory:// alone"),
        ("[cache] url", "'s3cret@host:1'", "***", f"not the URL of a store: give {STORES}"),
        ("[cache] url", "'memcached://h'", "***", f'unknown scheme "memcached": give {STORES}'),
        (
            "[cache] url",
            "'redis+valkey://h'",
            "***",
            f'unknown scheme "redis+valkey": give {STORES}',
        ),
        ("[cache] url", "'memory://x'", "***", "give memory:// alone"),
        ("[cache] url", "'file://x/y'", "***", A_FOLDER),
        ("[cache] url", "'file:///'", "***", A_FOLDER),
        ("[cache] url", "'file:///x?y=1'", "***", 'file:// takes no option "y"'),
        ("[cache] url", "'redis:///0'", "***", A_HOST_AND_PORT),
        ("[cache] url", "'redis://user:s3cret'", "***", A_HOST_AND_PORT),
        ("[cache] url", "'redis://h:0/1'", "***", A_HOST_AND_PORT),
        ("[cache] url", "'redis://h:x'", "***", A_HOST_AND_PORT),
        ("[cache] url", "'redis://h/x'", "***", A_DATABASE),
        ("[cache] url", "'redis://h:6379/0?x=1'", "***", 'redis:// takes no option "x"'),
        (
            "[cache] url",
            "'redis://h?password=s3cret'",
            "***",
            'redis:// takes no option "password"',
        ),
        (
            "[cache] url",
            "'rediss://h?ssl=1'",
            "***",
            'rediss:// takes no option "ssl", only ssl_ca_certs, ssl_cert_reqs, ssl_certfile, '
            "ssl_check_hostname, ssl_keyfile",
        ),
        ("[cache] url", "'redis://h#!'", "***", "redis:// takes no fragment (#)"),
        ("[cache] url", "'redis://h?s3cret'", "***", NO_URL),
        ("[cache] url", "'redis://:[s3cret@h'", "***", NO_URL),
        ("[cache] url", "'redis://u:s3c/3cret@h'", "***", A_PASSWORD),
        ("[cache] url", "'redis://u:s3c?3cret=@h'", "***", A_PASSWORD),
        ("[cache] url", "'redis://u:s3c#3cret@h'", "***", A_PASSWORD),
        ("[cache] url", "'redis://h i'", "***", "must not contain spaces and control characters"),
        (
            "[cache] url",
            "'redis://h,i'",
            "***",
            "redis:// takes one host, redis+cluster:// several",
        ),
        (
            "[cache] url",
            "'redis+cluster://h/1'",
            "***",
            "after the host of redis+cluster://, give nothing",
        ),
        (
            "[cache] url",
            "'redis+cluster://h,'",
            "***",
            A_HOST_AND_PORT.replace("redis", "redis+cluster"),
        ),
        ("[cache] url", "'redis+sentinel://h'", "***", A_PRIMARY),
        ("[cache] url", "'redis+sentinel://h/a/b'", "***", A_PRIMARY),
        ("[cache] url", "'unix:///s?db=x'", "***", "db must be the number of a database"),
        ("[cache] url", "'unix:///s?x=1'", "***", 'unix:// takes no option "x", only db'),
        (
            "[cache] url",
            "'aiocache://x'",
            "***",
            "give the name of a class, such as aiocache://aiocache.MemcachedCache?endpoint=127.0.0.1",
        ),
        ("[cache] url", "'s3://b'", "***", "the name of the bucket after s3:// is invalid"),
        (
            "[cache] url",
            "'s3://user:s3cret@bucket'",
            "***",
            "s3:// takes no credentials: they come from the environment or from roles",
        ),
        (
            "[cache] url",
            "'s3://bucket?secret_access_key=s3cret'",
            "***",
            's3:// takes no option "secret_access_key", only endpoint, region, '
            "virtual_hosted_style_request",
        ),
        ("[cache] hot_url", "'memory://'", "***", f"give a Redis, as for url: {REDIS}"),
        ("[cache] hot_url", "'redis://h/x'", "***", A_DATABASE),
        ("[cache] tracking_parameters", "1", "1", PARAMETERS),
        ("[cache] tracking_parameters", "[1]", "[1]", PARAMETERS),
        (
            "[cache] tracking_parameters",
            "['a*b']",
            "['a*b']",
            "'a*b' is not a query parameter name; * is allowed at the end",
        ),
        ("[cache] rules", "'/x'", "'/x'", f"{RULES}, each with path and ttl"),
        (
            "[cache] rules",
            "[{ path = '/x' }]",
            "[{'path': '/x'}]",
            f"{RULES}, each with path and ttl",
        ),
        (
            "[cache] rules",
            "[{ path = 'x', ttl = 1 }]",
            "[{'path': 'x', 'ttl': 1}]",
            "'x': a path must begin with / or *, which matches any text",
        ),
        (
            "[cache] rules",
            "[{ path = '/', ttl = 'no' }]",
            "[{'path': '/', 'ttl': 'no'}]",
            f'/: ttl: {A_DURATION}, or "never"',
        ),
        (
            "[admin] token",
            "'too-short'",
            "***",
            'give at least 16 ASCII characters, without spaces and commas, or "auto"',
        ),
        (
            "[cache] vary",
            "['browser']",
            "['browser']",
            'give a list of some of ["device", "language"]',
        ),
        (
            "[browser] language",
            "'german'",
            "'german'",
            "give a language tag (RFC 5646), such as en-US or de",
        ),
        ("[cache] languages", "['en', 'EN']", "['en', 'EN']", "a language is listed twice"),
        (
            "[cache] languages",
            "['english']",
            "['english']",
            "'english' is not a language tag (RFC 5646), such as en or de-CH",
        ),
        (
            "[cache] languages",
            "['en']",
            "['en']",
            'has no effect unless vary contains "language"',
        ),
        (
            "[triggers] ranges",
            "[{ name = 'GPTBot' }]",
            "[{'name': 'GPTBot'}]",
            'give a list of tables, for example [{ name = "GPTBot", file = "/etc/gptbot.json" }], '
            "each with name and file",
        ),
        (
            "[triggers] nameservers",
            "['dns.example']",
            "['dns.example']",
            "'dns.example': give a list of addresses, for example "
            '["10.0.0.2", "127.0.0.1:5353", "[::1]:53"]',
        ),
        (
            "[triggers] ai_user",
            "'text'",
            "'text'",
            'give "preset", "forward", "render", "markdown" or "refuse"',
        ),
        ("[cache] max_bytes", "'10 apples'", "'10 apples'", A_SIZE),
        ("[cache] max_bytes", "-1", "-1", "must be from 0 to 65536GiB"),
        ("[cache] max_bytes", "inf", "inf", "must be from 0 to 65536GiB"),
        ("[cache] max_bytes", "false", "False", A_SIZE),
        ("[network] max_requests", "0", "0", "give a whole number from 1 to 1000000"),
        ("[network] max_bytes", "0", "0", "must be more than 0"),
        (
            "[site] hosts",
            "['https://shop.example.com:8443']",
            "['https://shop.example.com:8443']",
            "'https://shop.example.com:8443': give the host without scheme and port: "
            '"shop.example.com"',
        ),
        ("[network] allow", "1", "1", HOSTS),
        ("[network] allow", "['a.example/b']", "['a.example/b']", A_HOST),
        (
            "[network] deny",
            "['http://me:secret@a']",
            "[***@a']",
            "an entry must not contain a user name or password",
        ),
        (
            "[network] block_types",
            "['images']",
            "['images']",
            'give a list of some of ["image", "font", "media"]',
        ),
        ("[network] third_parties", "'none'", "'none'", 'give "public" or "listed"'),
        ("[snapshot] add_canonical", "1", "1", A_FLAG),
        ("[snapshot] add_canonical", "'yes'", "'yes'", A_FLAG),
        ("[snapshot] volatile", "1", "1", PATTERNS),
        ("[snapshot] volatile", "[1]", "[1]", PATTERNS),
        ("[server] trusted_proxies", "1", "1", NETWORKS),
        ("[server] trusted_proxies", "[10]", "[10]", NETWORKS),
        ("[server] trusted_proxies", "['10.0.0.1/8']", "['10.0.0.1/8']", HOST_BITS),
        (
            "[log] level",
            "'loud'",
            "'loud'",
            'give "debug", "info", "warning" or "error"',
        ),
        ("[log] access", "'some'", "'some'", 'give "all", "snapshots" or "none"'),
        ("[log] secrets", "7", "7", SECRETS),
        (
            "[log] secrets",
            "['a=b']",
            "['a=b']",
            "'a=b' is not a query parameter name; * is allowed anywhere in it",
        ),
        ("[log] format", "1", "1", 'give "console" or "json"'),
        ("[tracing] endpoint", "'collector:4318'", "'collector:4318'", AN_ENDPOINT),
        ("[tracing] endpoint", "'http://'", "'http://'", AN_ENDPOINT),
        ("[tracing] endpoint", "'http://a[::1]@'", "'http://***@'", AN_ENDPOINT),
        (
            "[tracing] endpoint",
            "'http://a:b@c/'",
            "'http://***@c/'",
            "must not contain a user name or password",
        ),
        ("[tracing] sample", "1.1", "1.1", "give a number from 0 to 1"),
        ("[tracing] sample", "true", "True", "give a number from 0 to 1"),
        ("[tracing] sample", "'all'", "'all'", "give a number from 0 to 1"),
        ("[tracing] sample", "nan", "nan", "give a number from 0 to 1"),
        ("[origin] url", "'app:3000'", "'app:3000'", A_SITE),
        ("[origin] url", "'ftp://app'", "'ftp://app'", A_SITE),
        ("[origin] url", "'http://'", "'http://'", A_SITE),
        ("[origin] url", "'http://app:99999'", "'http://app:99999'", A_SITE),
        ("[origin] url", "'http://app:0'", "'http://app:0'", A_SITE),
        ("[origin] url", "'http://a b'", "'http://a b'", A_SITE),
        ("[origin] url", '"http://a\\nb"', r"'http://a\nb'", A_SITE),
        ("[origin] url", "'http://[::1'", "'http://[::1'", A_SITE),
        ("[origin] url", "'http://a[::1]@'", "'http://***@'", A_SITE),
        ("[origin] url", "''", "''", A_SITE),
        ("[origin] url", "3000", "3000", "give a string"),
        ("[site] url", "'http://a[::1]@'", "'http://***@'", A_SITE),
        ("[site] url", "'http://app/path'", "'http://app/path'", SITE_ONLY),
        ("[site] url", "'http://app?a=1'", "'http://app?a=1'", SITE_ONLY),
        ("[site] url", "'http://app#!a'", "'http://app#!a'", SITE_ONLY),
    ],
)
def test_a_wrong_value_is_one_line(
    tmp_path: Path, setting: str, value: str, shown: str, allowed: str
) -> None:
    section, key = setting.split()
    file = written(tmp_path, f"{section}\n{key} = {value}")
    environ = {} if section == "[origin]" else ORIGIN
    assert problem(file, environ) == f"{setting} (from {file}): {shown}: {allowed}"


# Of all types of TOML, and as deep or large as they can be.
ODD_VALUES: list[object] = [
    True, -1, 1.5, math.nan, math.inf, 10**400, "", "x", "\0", "\udcff", "/\ud800", date(2026, 1, 2),
    {}, {"a": {"b": []}}, [], [""], ["x"], ["\udcff"], [1], [math.nan], [10**400], [True], [{}],
    [date(2026, 1, 2)], [["x"]], [[[]]], [{"path": "/", "ttl": [1]}], [{"path": [], "ttl": 1}],
    [{"class": ["social"], "name": "x"}], [{"class": "social", "name": {}}], [{"name": [], "file": 1}],
]  # fmt: skip


@pytest.mark.parametrize(("section", "key"), all_settings())
def test_an_odd_value_is_accepted_or_complained_of(section: str, key: str) -> None:
    """In one line, without an error of Python."""
    settings: dict[str, dict[str, object]] = {"origin": {"url": "http://a"}}
    for value in ODD_VALUES:
        settings[section] = settings.get(section, {}) | {key: value}
        try:
            load(None, {}, settings)
        except ConfigError as error:
            (said,) = error.problems
            assert said.isprintable()
            assert said.startswith(f"[{section}] "), said


def test_a_setting_that_another_one_needs_is_named() -> None:
    said = problem(None, ORIGIN | {"PRERENDER_WEBHOOKS_URL": "https://hooks.example.com/"})
    assert said.startswith("[webhooks] secret: required because url is set: ")
    said = problem(None, ORIGIN | {"PRERENDER_CDN_PROVIDER": "fastly", "PRERENDER_CDN_ZONE": "a1"})
    assert said == "[cdn] token: required because provider is set: set it or token_file"
    environ = {"PRERENDER_ADMIN_HOST": "192.0.2.1", "PRERENDER_ADMIN_TOKEN": ""}
    said = problem(None, ORIGIN | environ)
    assert said.startswith("[admin] token (from PRERENDER_ADMIN_TOKEN): required because ")


@pytest.mark.parametrize(
    ("server", "admin", "port", "collide"),
    [
        ("127.0.0.1", "127.0.0.1", 8000, True),
        ("0.0.0.0", "127.0.0.1", 8000, True),
        ("::1", "::", 8000, True),
        ("127.0.0.2", "127.0.0.1", 8000, False),
        ("127.0.0.1", "127.0.0.1", 0, False),
    ],
)
def test_listeners_at_the_same_port(server: str, admin: str, port: int, collide: bool) -> None:
    environ = ORIGIN | {
        "PRERENDER_SERVER_HOST": server,
        "PRERENDER_SERVER_PORT": str(port),
        "PRERENDER_ADMIN_HOST": admin,
        "PRERENDER_ADMIN_PORT": str(port),
        "PRERENDER_ADMIN_TOKEN": "a-token-of-some-length",
    }
    if collide:
        assert problem(None, environ) == f"[server] port: {port}: the same as [admin] port"
    else:
        assert load(None, environ).server.port == port


def test_a_wrong_variable_is_named() -> None:
    said = problem(None, ORIGIN | {"PRERENDER_SERVER_PORT": "http"})
    assert said == f"[server] port (from PRERENDER_SERVER_PORT): 'http': {WHOLE_PORT}"
    said = problem(None, {"PRERENDER_ORIGIN": os.fsdecode(b"http://\xff")})
    assert said == rf"[origin] url (from PRERENDER_ORIGIN): 'http://\udcff': {A_SITE}"


@pytest.mark.parametrize(("section", "key"), all_settings())
def test_an_empty_variable_is_a_value_like_any_other(section: str, key: str) -> None:
    environ = ORIGIN | {variable(section, key): ""}
    if isinstance(getattr(getattr(load(None, ORIGIN), section), key), tuple):
        assert getattr(getattr(load(None, environ), section), key) == ()
    elif (section, key) in MAY_BE_EMPTY:
        assert getattr(getattr(load(None, environ), section), key) == ""
    else:
        said = problem(None, environ)
        assert said.startswith(f"[{section}] {key} (from {variable(section, key)}): '': ")


def test_all_problems_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, "loose = 1\n[server]\nport = 'x'\nhots = ''\n[cach]\nttl = 1\n[[log]]")
    found = problems(file, {"PRERENDER_CACHE_TTL": "x", "PRERENDER_LEVEL": "info"})
    assert [line.partition(":")[0].removeprefix(f"{file}: ") for line in found] == [
        str(file),
        str(file),
        "PRERENDER_LEVEL",
        "[origin] url",
        f"[server] port (from {file})",
        f"[server] hots (from {file})",
        "[cache] ttl (from PRERENDER_CACHE_TTL)",
        f"[cach] (from {file})",
    ]


def test_what_is_required() -> None:
    said = "[origin] url: is required; set it in the file or as PRERENDER_ORIGIN_URL"
    assert problem(None, {}) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[cach]\nttl = 1", "[cach] (from FILE): unknown setting; did you mean cache?"),
        (
            "[cache]\ntll = 1",
            "[cache] tll (from FILE): unknown setting; did you mean ttl?",
        ),
        (
            "[server]\nttl = 1",
            "[server] ttl (from FILE): unknown setting; did you mean [cache] ttl?",
        ),
        (
            "[server]\nzzz = 1",
            "[server] zzz (from FILE): unknown setting; known: "
            + ", ".join(ServerSettings.model_fields),
        ),
        (
            '["a\\nb"]\nc = 1',
            r"[a\nb] (from FILE): unknown setting; known: " + ", ".join(Settings.model_fields),
        ),
        ("port = 80", "FILE: port: settings belong in a [section]"),
        ("[[server]]\nport = 80", "FILE: server: settings belong in a [section]"),
    ],
)
def test_an_unknown_setting_in_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    assert problem(file) == said.replace("FILE", str(file))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PRERENDER_CACHE_TLL", "PRERENDER_CACHE_TTL"),
        ("PRERENDER_ORIGINURL", "PRERENDER_ORIGIN_URL"),
        ("PRERENDER_TTL", "PRERENDER_CACHE_TTL"),
        ("PRERENDER_PORT", "PRERENDER_SERVER_PORT or PRERENDER_ADMIN_PORT"),
    ],
)
def test_an_unknown_variable(name: str, meant: str) -> None:
    said = problem(None, ORIGIN | {name: "80"})
    assert said == f"{name}: unknown setting; did you mean {meant}?"


def test_an_unknown_variable_that_is_like_none() -> None:
    said = problem(None, ORIGIN | {"PRERENDER_X": "1"})
    everything = "prerender config --example prints all settings"
    assert said == f"PRERENDER_X: unknown setting; {everything}"


def test_variables_of_a_middleware_in_the_same_file_are_not_ours() -> None:
    told = {"PRERENDER_TOKEN": "abc", "PRERENDER_SERVICE_URL": "http://127.0.0.1:8080/"}
    assert load(None, ORIGIN | told) == load(None, ORIGIN)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("NETWORK_ALLOW", "cdn.example.com,*.ads.example", ("cdn.example.com", "*.ads.example")),
        ("NETWORK_ALLOW", " cdn.example.com , ", ("cdn.example.com",)),
        ("NETWORK_ALLOW", '["cdn.example.com"]', ("cdn.example.com",)),
        ("NETWORK_ALLOW", "", ()),
        ("NETWORK_ALLOW", "http://[::1]:3001,10.0.0.0/8", ("http://[::1]:3001", "10.0.0.0/8")),
        ("TRIGGERS_NAMESERVERS", "[::1]:53,10.0.0.2", ("[::1]:53", "10.0.0.2")),
        ("CACHE_VARY", "device,language", ("device", "language")),
        ("CACHE_LANGUAGES", "en, de-CH", ("en", "de-CH")),
        ("TRIGGERS_EXCLUDE", '["/a,b/*"]', ("/a,b/*",)),
        ("SERVER_TRUSTED_PROXIES", "10.0.0.0/8,fd00::/8", ("10.0.0.0/8", "fd00::/8")),
    ],
)
def test_lists_in_the_environment(name: str, text: str, value: tuple[str, ...]) -> None:
    both = {"PRERENDER_CACHE_LANGUAGES": "en", "PRERENDER_CACHE_VARY": "device,language"}
    environ = ORIGIN | (both if name in ("CACHE_VARY", "CACHE_LANGUAGES") else {})
    environ |= {f"PRERENDER_{name}": text}
    section, _, key = name.lower().partition("_")
    found = getattr(getattr(load(None, environ), section), key)
    assert tuple(map(str, found)) == value


@pytest.mark.parametrize(
    "text", ["['cdn.example.com']", '["cdn.example.com"', "[1]", "[]]", '["a",']
)
def test_lists_in_the_environment_that_are_none(text: str) -> None:
    said = problem(None, ORIGIN | {"PRERENDER_NETWORK_ALLOW": text})
    assert said.startswith("[network] allow (from PRERENDER_NETWORK_ALLOW): ")


def test_variables_of_a_kubernetes_service_called_prerender_are_not_ours() -> None:
    load(
        None,
        ORIGIN
        | {
            "PRERENDER_SERVICE_HOST": "10.0.0.1",
            "PRERENDER_SERVICE_PORT": "80",
            "PRERENDER_SERVICE_PORT_HTTP": "80",
            "PRERENDER_PORT": "tcp://10.0.0.1:80",
            "PRERENDER_PORT_80_TCP": "tcp://10.0.0.1:80",
            "PRERENDER_PORT_80_TCP_PROTO": "tcp",
            "PRERENDER_PORT_80_TCP_PORT": "80",
            "PRERENDER_PORT_80_TCP_ADDR": "10.0.0.1",
        },
    )


@pytest.mark.parametrize("section", ["ADMIN", "SERVER"])
def test_a_kubernetes_service_called_like_a_section_sets_no_port(section: str) -> None:
    defaults = load(None, ORIGIN)
    found = load(
        None,
        ORIGIN
        | {
            f"PRERENDER_{section}_SERVICE_HOST": "10.0.0.1",
            f"PRERENDER_{section}_SERVICE_PORT": "80",
            f"PRERENDER_{section}_PORT": "tcp://10.0.0.1:80",
            f"PRERENDER_{section}_PORT_80_TCP": "tcp://10.0.0.1:80",
        },
    )
    assert (found.admin.port, found.server.port) == (defaults.admin.port, defaults.server.port)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:s3cret@app:3000",
        "http://user:s3cr/3cret@app:3000",
        "http://user:s3c@3cret@app",
        "http://s3cret@app",
        "http:/user:s3cret@app",
        "user:s3cret@app:3000",
        "user:s3cret//3cret@app",
        "http://user:s3cret@app/path",
        "http://user:s3cret\n3cret@app",
        "ftp://user:s3cret@app:port",
    ],
)
def test_passwords_are_not_printed(url: str) -> None:
    for name in ("PRERENDER_ORIGIN_URL", "PRERENDER_SITE_URL", "PRERENDER_SERVER_PORT"):
        said = problem(None, ORIGIN | {name: url})
        assert "***@app" in said
        assert "3cret" not in said


@pytest.mark.parametrize(
    "name",
    [
        "SITEMAPS_URLS",
        "NETWORK_ALLOW",
        "SITE_HOSTS",
        "DROP_IN_HOSTS",
        "SERVER_TRUSTED_PROXIES",
        "TRIGGERS_NAMESERVERS",
        "TRIGGERS_EXCLUDE",
    ],
)
@pytest.mark.parametrize("form", ["{}", "a.example,{}", '["{}"]'])
def test_passwords_in_lists_are_not_printed(name: str, form: str) -> None:
    value = form.format("https://user:s3cret@app/x")
    said = problem(None, ORIGIN | {f"PRERENDER_{name}": value})
    assert "s3cret" not in said


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    assert problem(file, {}) == f"{file}: cannot be read: No such file or directory"
    assert problem(tmp_path, {}) == f"{tmp_path}: cannot be read: Is a directory"


def test_the_encoding_of_a_file(tmp_path: Path) -> None:
    text = '[origin]\nurl = "http://app:3000"\n'
    file = written(tmp_path, text.encode("utf-8-sig"))
    assert load(file, {}).origin.url == "http://app:3000"
    for encoding in ("utf-16", "latin-1"):
        content = f"# ü\n{text}".encode(encoding)
        file = written(tmp_path, content)
        assert problem(file, {}) == f"{file}: is not UTF-8"


def test_files_that_settings_name_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a-token-of-some-length", "utf-8-sig")
    assert TokenFile(str(file)).tokens() == ("a-token-of-some-length",)
    file.write_text('{"prefixes": [{"ipv4Prefix": "192.0.2.0/24"}]}', "utf-8-sig")
    assert ip_address("192.0.2.1") in RangesFile(file)
    file.write_text("[search]\nExampleBot = {}", "utf-8-sig")
    assert [one.name for one in known.read(file).crawlers] == ["ExampleBot"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    file = written(tmp_path, "")
    file.chmod(0)
    assert problem(file, {}) == f"{file}: cannot be read: Permission denied"


@pytest.mark.parametrize(
    "content",
    [
        b"[server",
        b"port: 80",
        b"a = 1\na = 2",
        b"a = " + b"9" * 5000,
        b"a = " + b"[" * 9999,
    ],
)
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes) -> None:
    file = written(tmp_path, content)
    assert problem(file, {}).startswith(f"{file}: is not TOML: ")
    said = problems(file, {"PRERENDER_SERVER_PORT": "x"})
    assert said[1:] == [f"[server] port (from PRERENDER_SERVER_PORT): 'x': {WHOLE_PORT}"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("2.5", 2.5), ("500ms", 0.5), (" 10 m ", 600), ("1.5H", 5400), ("365d", 31_536_000)],
)
def test_durations(text: str, seconds: float) -> None:
    assert load(None, ORIGIN | {"PRERENDER_CACHE_TTL": text}).cache.ttl == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("64KiB", 65536), ("1.5 MiB", 1572864), ("1gb", 10**9), ("10b", 10)],
)
def test_sizes(text: str, size: int) -> None:
    assert load(None, ORIGIN | {"PRERENDER_CACHE_MAX_BYTES": text}).cache.max_bytes == size


def test_flags() -> None:
    for text, value in (("true", True), ("False", False)):
        settings = load(None, ORIGIN | {"PRERENDER_SNAPSHOT_ADD_CANONICAL": text})
        assert settings.snapshot.add_canonical is value


def test_patterns(tmp_path: Path) -> None:
    file = written(tmp_path, "[snapshot]\nvolatile = ['a[0-9]+', 'b\"']")
    assert load(file, ORIGIN).snapshot.volatile == ("a[0-9]+", 'b"')
    name = "PRERENDER_SNAPSHOT_VOLATILE"
    assert load(None, ORIGIN | {name: r'["\\d"]'}).snapshot.volatile == (r"\d",)
    assert problem(None, ORIGIN | {name: '["' + "[" * 99999}).endswith(PATTERNS)
    for pattern in ("(", "a{99999999999}"):
        said = problem(None, ORIGIN | {name: json.dumps([pattern])})
        assert f": '{pattern}' is not a regular expression: " in said


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "file:///var/cache/prerender",
        "redis://localhost",
        "redis://user:p%40ss%2F@redis.internal:6380/15",
        "redis://[::1]:6379/0",
        "rediss://:secret@redis:6379/0?ssl_ca_certs=/ca.pem",
        "redis+cluster://user:p%40ss@a:7000,b,[::1]:7001",
        "rediss+cluster://a?ssl_ca_certs=/ca.pem",
        "redis+sentinel://:p%40ss@a,b:26380/primary",
        "rediss+sentinel://a/primary/2?ssl_ca_certs=/ca.pem",
        "s3://bucket",
        "s3://bucket/a/prefix?endpoint=http://minio:9000&region=us-east-1",
        "gs://bucket/prefix",
        "az://container/prefix?account_name=name",
        "unix:///run/redis.sock",
        "unix://user:secret@/run/redis.sock?db=2",
    ],
)
def test_stores(url: str) -> None:
    settings = load(None, ORIGIN | {"PRERENDER_CACHE_URL": url})
    assert settings.cache.url == url
    assert url not in repr(settings) or url == "memory://"


def test_rules(tmp_path: Path) -> None:
    text = '[[cache.rules]]\npath = "/a*"\nttl = "5m"\n[[cache.rules]]\npath = "*"\nttl = "never"'
    rules = (("/a*", 300.0), ("*", 0.0))
    assert load(written(tmp_path, text), ORIGIN).cache.rules == rules
    variable = '[{"path": "/a*", "ttl": 300}, {"path": "*", "ttl": "never"}]'
    assert load(None, ORIGIN | {"PRERENDER_CACHE_RULES": variable}).cache.rules == rules


@given(
    count=st.integers(0, 10**6),
    unit=st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("", 1)]),
    space=st.sampled_from(["", " "]),
)
def test_every_duration_reads_as_it_was_written(
    count: int, unit: tuple[str, float], space: str
) -> None:
    name, seconds = unit
    if count * seconds <= 365 * 86400:
        text = f"{count}{space}{name}"
        settings = load(None, ORIGIN | {"PRERENDER_CACHE_TTL": text})
        assert settings.cache.ttl == pytest.approx(count * seconds)


@given(
    count=st.integers(0, 2**16),
    unit=st.sampled_from(
        [("B", 1), ("kB", 1000), ("MiB", 1024**2), ("GB", 10**9), ("GiB", 1024**3)]
    ),
)
def test_every_size_reads_as_it_was_written(count: int, unit: tuple[str, int]) -> None:
    name, size = unit
    settings = load(None, ORIGIN | {"PRERENDER_CACHE_MAX_BYTES": f"{count}{name}"})
    assert settings.cache.max_bytes == count * size


@given(st.dictionaries(st.sampled_from([variable(*name) for name in all_settings()]), st.text()))
def test_whatever_the_environment_is_it_is_used_or_complained_of(environ: dict[str, str]) -> None:
    with suppress(ConfigError):
        load(None, environ)


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        ("no s3cret colon", A_HEADER),
        ('["A: b", "Basic s3cret"]', A_HEADER.replace("1", "2", 1)),
        ('["A: s3cret\\r\\nB: c"]', A_HEADER),
        ("A: s3crét", A_HEADER),
        ("A:", A_HEADER),
        ("A: s3cret, a: b", "'a' is listed twice"),
        ("host: s3cret", f"'host': {OF_THE_PROXY}"),
        ("Cookie: s3cret", f"'Cookie': {OF_THE_PROXY}"),
        ("Sec-CH-UA: s3cret", f"'Sec-CH-UA': {OF_THE_PROXY}"),
        ("Connection: s3cret", f"'Connection': {OF_THE_PROXY}"),
        ("Accept-Language: de", "'Accept-Language': set [browser] language instead"),
    ],
)
def test_a_wrong_header_is_not_quoted(value: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, {"PRERENDER_ORIGIN": "http://app:1", "PRERENDER_ORIGIN_HEADERS": value})
    assert raised.value.problems == [
        f"[origin] headers (from PRERENDER_ORIGIN_HEADERS): ***: {allowed}"
    ]
