"""The configuration of an nginx that serves an export by itself. Pure.

Which file is whose stands in a ``map``, never in a path that is made of a request. nginx takes keys of
a map in any case, but ``/#!/A`` is another page than ``/#!/a``: a second map compares what was found
with the request, and keys that differ by case alone are regular expressions, which are case-sensitive.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from prerender.snapshots.archive import PAGES, Archived
from prerender.urls.ajax_crawling import UGLY_TOKEN, pretty_to_ugly

HTTP_FILE = "nginx-http.conf"
SERVER_FILE = "nginx-server.conf"
# Those that snapshots have (headers.kept_on_snapshot), and the name of a variable for each.
_FIELDS = {"content-language": "Content-Language", "link": "Link", "x-robots-tag": "X-Robots-Tag"}

# nginx knows no way to write a dollar in a value but this.
_DOLLAR = "$prerender_dollar"
_HTTP = """\
# Which file is the snapshot of which ugly URL. Include it in the http block.

# Where these two are set already, keep the larger ones.
map_hash_max_size {hash_size};
map_hash_bucket_size {bucket_size};
geo {dollar} {{
  default "$";
}}
map $request_uri $prerender_found {{
  default "";
{found}}}
# Keys of a map are taken in any case: what was found has to be what was asked for.
map "$prerender_found $request_uri" $prerender_file {{
  default "";
  "~^(?<prerender_name>[0-9a-f/]+):(?<prerender_uri>.*) \\k{{prerender_uri}}$" $prerender_name;
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
    """The files of the configuration by name, for the pages of an export in ``folder``."""
    entries = list(pages)
    keys: dict[str, dict[str, Archived]] = defaultdict(dict)
    for entry in entries:
        for uri in ugly_forms(entry.page):
            keys[uri.lower()][uri] = entry
    exact, by_case = [], []
    for same in keys.values():
        for uri, entry in same.items():
            value = _value(f"{_name(entry)}:{uri}")
            if len(same) == 1:
                exact.append(f"  {_string(uri)} {value};\n")
            else:
                by_case.append(f"  {_string('~^' + re.escape(uri) + '$')} {value};\n")
    fields = "".join(
        _FIELD.format(variable=variable, values=_lines(values))
        for variable, values in _field_values(entries).items()
    )
    statuses = {_name(entry): str(entry.status) for entry in entries if entry.status != 200}
    longest = max((len(uri.encode()) for same in keys.values() for uri in same), default=0)
    http = _HTTP.format(
        hash_size=_power_of_two(4 * len(exact), 2048),
        bucket_size=_power_of_two(longest + 64, 128),
        dollar=_DOLLAR,
        found="".join([*exact, *by_case]),
        statuses=_lines(statuses),
        fields=fields,
    )
    return {HTTP_FILE: http, SERVER_FILE: _server(folder)}


def ugly_forms(page: str) -> list[str]:
    """The request targets by which crawlers ask for a page: the scheme's own form, and the one in which
    everything is escaped that encodeURIComponent escapes."""
    ugly = pretty_to_ugly(page, opted_in=True)
    if ugly is None:
        return []
    before, token, _ = ugly.rpartition(UGLY_TOKEN)
    escaped = quote(page.partition("#!")[2], safe="!'()*")
    return list(dict.fromkeys([ugly, f"{before}{token}{escaped}"]))


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
    found: dict[str, dict[str, str]] = {_variable(name): {} for name in _FIELDS.values()}
    for entry in entries:
        for name, value in entry.headers:
            if known := _FIELDS.get(name.lower()):
                said = found[_variable(known)]
                before = f"{said[_name(entry)]}, " if _name(entry) in said else ""
                said[_name(entry)] = before + value
    return found


def _variable(name: str) -> str:
    return name.lower().replace("-", "_")


def _name(entry: Archived) -> str:
    return entry.file.removeprefix(f"{PAGES}/").removesuffix(".html")


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"  {name} {_value(value)};\n" for name, value in values.items())


def _string(text: str) -> str:
    """A text as nginx has it between quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _value(text: str) -> str:
    """A text where nginx would put in the values of variables."""
    return _string(text).replace("$", f"${{{_DOLLAR[1:]}}}")


def _power_of_two(least: int, smallest: int) -> int:
    size = smallest
    while size < least:
        size *= 2
    return size
