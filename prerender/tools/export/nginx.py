"""The configuration of an nginx that serves an export without the proxy. Pure.

The file of a page is looked up in a ``map``; no path is built from a request. The keys are pretty URLs:
in the scheme all ways to escape a fragment are the same page, so the value of the token is unescaped
first. nginx has no function for that, but a chain of maps can do it, one escape each.

nginx compares keys of a map without regard to case, but ``/#!/A`` and ``/#!/a`` are different pages: a
second map compares the result with the page, and keys that differ only in case are regular expressions,
which are case-sensitive.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from prerender.tools.export.archive import PAGES, Archived
from prerender.urls.ajax_crawling import PrettyURL

HTTP_FILE = "nginx-http.conf"
SERVER_FILE = "nginx-server.conf"
# The headers of snapshots (forwarding_headers.snapshot_headers), and a variable name for each.
_FIELDS = {"content-language": "Content-Language", "link": "Link", "x-robots-tag": "X-Robots-Tag"}

# The only way to write a dollar sign in a value of nginx.
_DOLLAR = "$prerender_dollar"
_HTTP = """\
# Which file is the snapshot of which ugly URL. Include it in the http block.

# Where these two are set already, keep the larger ones.
map_hash_max_size {hash_size};
map_hash_bucket_size {bucket_size};
geo {dollar} {{
  default "$";
}}

# What an ugly URL stands for: "PAGE#!", a space, and the value, which is unescaped from left to right.
map $request_uri $prerender_0 {{
  default "";
  "~[?&]_escaped_fragment_(=[^&]*)?&" "";
  "~^(?<prerender_a>[^?]*)\\?_escaped_fragment_=(?<prerender_b>[^&]*)$"
    "$prerender_a#! $prerender_b";
  "~^(?<prerender_a>[^?]*\\?.*)&_escaped_fragment_=(?<prerender_b>[^&]*)$"
    "$prerender_a#! $prerender_b";
}}
map $prerender_hex $prerender_octet {{
  volatile;
{octets}}}
{steps}map $prerender_{last} $prerender_unescaped {{
  default "";
  "~^(?<prerender_a>[^ ]*)#! $" $prerender_a;
  "~^(?<prerender_a>[^ ]*) (?<prerender_b>{unescaped}*)$" "$prerender_a$prerender_b";
}}
map $prerender_0 $prerender_uri {{
  default $prerender_unescaped;
  "" "";
}}
map $prerender_uri $prerender_found {{
  default "";
{files}}}
# Keys of a map are case-insensitive: compare the found page with the requested one.
map "$prerender_found $prerender_uri" $prerender_file {{
  default "";
  "~^(?<prerender_name>[0-9a-f/]+):(?<prerender_key>.*) \\k{{prerender_key}}$" $prerender_name;
}}
map $request_method $prerender_page {{
  default "";
  GET $prerender_file;
  HEAD $prerender_file;
}}
map $prerender_page $prerender_status {{
  default 200;
  "" "";
{statuses}}}
{fields}"""

# Most pages have an escape or two; requests with more go to the site. nginx nests up to 100 maps.
STEPS = 80
# Unchanged: all characters that location.hash does not escape, and escapes of those that it does.
_UNESCAPED = (
    r"(?:[^%\"<>`]|%(?![0-9A-Fa-f]{{2}})|%(?:[01][0-9A-F]|20|22|3C|3E|60|7F|[89A-F][0-9A-F]))"
)
_STEP = """\
map $prerender_{before} $prerender_{after} {{
  default $prerender_{before};
  "~^(?<prerender_a>[^ ]*) (?<prerender_k>{unescaped}*+)%(?<prerender_hex>..)(?<prerender_b>.*)$"
    "$prerender_a$prerender_k$prerender_octet $prerender_b";
  "~^(?<prerender_a>[^ ]*) (?<prerender_k>{unescaped}*+)(?<prerender_hex>.)(?<prerender_b>.*)$"
    "$prerender_a$prerender_k$prerender_octet $prerender_b";
}}
"""

_FIELD = """\
map $prerender_page $prerender_{variable} {{
  default "";
{values}}}
"""

_SERVER = """\
# Serves the snapshots of an export. Include it in the server block; all else goes its way as before.

if ($prerender_status = 200) {{ rewrite ^ /.prerender/200? last; }}
if ($prerender_status = 404) {{ rewrite ^ /.prerender/404? last; }}
if ($prerender_status = 410) {{ rewrite ^ /.prerender/410? last; }}

location = /.prerender/200 {{
  internal;
  {serve}
}}
location = /.prerender/404 {{
  internal;
  error_page 404 @prerender_missing;
  return 404;
}}
location = /.prerender/410 {{
  internal;
  error_page 410 @prerender_missing;
  return 410;
}}
location @prerender_missing {{
  {serve}
}}
"""


def configuration(pages: Iterable[Archived], folder: str) -> dict[str, str]:
    """The configuration files by name, for the pages of an export in ``folder``."""
    entries = list(pages)
    keys: dict[str, list[Archived]] = defaultdict(list)
    for entry in entries:
        keys[entry.path.lower()].append(entry)
    exact, by_case = [], []
    for same in keys.values():
        for entry in same:
            value = _value(f"{_name(entry)}:{entry.path}")
            if len(same) == 1:
                exact.append(f"  {_string(entry.path)} {value};\n")
            else:
                key = _string("~^" + re.escape(entry.path) + "$")
                by_case.append(f"  {key} {value};\n")
    fields = "".join(
        _FIELD.format(variable=variable, values=_lines(values))
        for variable, values in _field_values(entries).items()
    )
    statuses = {_name(entry): str(entry.status) for entry in entries if entry.status != 200}
    longest = max((len(entry.path.encode()) for entry in entries), default=0)
    http = _HTTP.format(
        hash_size=_power_of_two(4 * len(exact), 2048),
        bucket_size=_power_of_two(longest + 64, 128),
        dollar=_DOLLAR,
        octets="".join(_octets()),
        steps="".join(_steps()),
        last=STEPS,
        unescaped=_UNESCAPED.format(),
        files="".join([*exact, *by_case]),
        statuses=_lines(statuses),
        fields=fields,
    )
    return {HTTP_FILE: http, SERVER_FILE: _server(folder)}


def _octets() -> Iterator[str]:
    """The form of an escape, or of a character that must be escaped, in location.hash."""
    for octet in range(0x100):
        text = PrettyURL("", chr(octet)).location_hash.removeprefix("#!")
        if octet > 0x7F:
            text = f"%{octet:02X}"
        yield f"  {octet:02x} {_value(text)};\n"
    for character in '"<>`':
        yield f"  {_string(character)} {quote(character)};\n"


def _steps() -> Iterator[str]:
    unescaped = _UNESCAPED.format()
    for step in range(STEPS):
        yield _STEP.format(before=step, after=step + 1, unescaped=unescaped)


def _server(folder: str) -> str:
    serve = [
        f"root {_string(f'{folder}/{PAGES}')};",
        "try_files /$prerender_page.html =404;",
        "types { }",
        "default_type text/html;",
        "charset utf-8;",
        "gzip_static on;",
        "gzip_vary on;",
        'add_header Cache-Control "no-cache" always;',
        *(f"add_header {name} $prerender_{_variable(name)} always;" for name in _FIELDS.values()),
    ]
    return _SERVER.format(serve="\n  ".join(serve))


def _field_values(entries: Iterable[Archived]) -> Mapping[str, dict[str, str]]:
    by_variable: dict[str, dict[str, str]] = {_variable(name): {} for name in _FIELDS.values()}
    for entry in entries:
        for name, value in entry.headers:
            if known := _FIELDS.get(name.lower()):
                by_header = by_variable[_variable(known)]
                before = f"{by_header[_name(entry)]}, " if _name(entry) in by_header else ""
                by_header[_name(entry)] = before + value
    return by_variable


def _variable(name: str) -> str:
    return name.lower().replace("-", "_")


def _name(entry: Archived) -> str:
    return entry.file.removeprefix(f"{PAGES}/").removesuffix(".html")


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"  {name} {_value(value)};\n" for name, value in values.items())


def _string(text: str) -> str:
    """A quoted string of nginx."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _value(text: str) -> str:
    """A string in which nginx would expand variables."""
    return _string(text).replace("$", f"${{{_DOLLAR[1:]}}}")


def _power_of_two(least: int, smallest: int) -> int:
    size = smallest
    while size < least:
        size *= 2
    return size


STATIC_HTTP_FILE = "nginx-static-http.conf"
STATIC_SERVER_FILE = "nginx-static-server.conf"
_STATIC_HTTP = """\
# Which requests get a file of the static export: those of crawlers, for a URL without a query. Include
# it in the http block.

map $http_user_agent $prerender_crawler {{
  default "";
{crawlers}}}
map "$request_method$is_args$prerender_crawler" $prerender_static {{
  default "";
  GETcrawler 1;
  HEADcrawler 1;
}}
"""
_STATIC_SERVER = """\
# Serves crawlers the files of a static export. Include it in the server block; all else goes its way as
# before. Caches in front must distinguish by User-Agent: let visitors' pages carry Vary, too.

if ($prerender_static) {{ rewrite ^(.*)$ /.prerender-static$1 last; }}

location ~ ^/\\.prerender-static(?<prerender_path>/.*\\.html?)$ {{
  {serve}
  try_files $prerender_path @prerender_visitor;
}}
location ~ ^/\\.prerender-static(?<prerender_path>/.*?)/?$ {{
  {serve}
  try_files $prerender_path/index.html @prerender_visitor;
}}
location @prerender_visitor {{
  rewrite ^/\\.prerender-static(.*)$ $1 last;
}}
"""


def static_configuration(names: Iterable[str], folder: str) -> dict[str, str]:
    """The configuration files for a static export in ``folder``, which the crawlers with these names in
    their User-Agent get (crawlers/user_agents.py has the form of names)."""
    serve = [
        "internal;",
        f"root {_string(folder)};",
        "types { }",
        "default_type text/html;",
        "charset utf-8;",
        "add_header Vary User-Agent always;",
        'add_header Cache-Control "no-cache" always;',
    ]
    lines = []
    for name in names:
        token = name.removeprefix("^")
        start = "^" if token != name else r"(?<![\w])(?<!like )"
        end = r"(?!\w)" if re.match(r"\w", token[-1]) else ""
        lines.append(f"  {_string(f'~*{start}{re.escape(token)}{end}')} crawler;\n")
    return {
        STATIC_HTTP_FILE: _STATIC_HTTP.format(crawlers="".join(lines)),
        STATIC_SERVER_FILE: _STATIC_SERVER.format(serve="\n  ".join(serve)),
    }
