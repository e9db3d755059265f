"""The URLs of stores: [cache] url."""

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from prerender.urls.hosts import servers

_HELP = (
    'give "memory://", "file:///a/folder", "redis://user:password@host:6379/0", "rediss://...", '
    '"unix:///a/socket?db=0", "redis+cluster://host:6379,host:6379", '
    '"redis+sentinel://host:26379,host:26379/service", "s3://bucket/prefix", "gs://bucket/prefix", '
    '"az://container/prefix?account_name=NAME" or "aiocache://package.Class?option=value"; '
    "percent-encode special characters in a password"
)
# Options of redis-py. Others would break assumptions of the code, or expose a password.
_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)
# Options of obstore by scheme. Credentials come from the environment or from roles.
OBJECT_STORES = {
    "s3": frozenset({"endpoint", "region", "virtual_hosted_style_request"}),
    "gs": frozenset({"base_url"}),
    "az": frozenset({"account_name", "endpoint", "use_emulator"}),
}
_REDIS_HELP = (
    'give a Redis, as for url: "redis://user:password@host:6379/0", "rediss://...", '
    '"unix:///a/socket?db=0", "redis+cluster://..." or "redis+sentinel://..."'
)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{2,221}", re.ASCII)
_DATABASE = "[0-9]{1,5}"
# What comes after the servers, by what the scheme has after its "+".
_PATHS = {
    "": re.compile(rf"/?|/{_DATABASE}", re.ASCII),
    "cluster": re.compile("/?"),
    "sentinel": re.compile(rf"/[^/]+(/|/{_DATABASE})?", re.ASCII),
}


def checked(value: str) -> str:
    """The URL of a store. Raises ValueError."""
    if not _is_known(value):
        raise ValueError(_HELP)
    return value


def redis_or_nothing(value: str) -> str:
    """The URL of a Redis, or ''. Raises ValueError."""
    scheme = value.partition(":")[0].partition("+")[0]
    if value and not (scheme in ("redis", "rediss", "unix") and _is_known(value)):
        raise ValueError(_REDIS_HELP)
    return value


def _is_known(value: str) -> bool:
    try:
        return value.isprintable() and " " not in value and _is_store(urlsplit(value))
    except ValueError:
        return False


def _is_store(url: SplitResult) -> bool:
    if url.fragment:
        return False
    options = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
    scheme, _, kind = url.scheme.partition("+")
    if scheme in ("redis", "rediss"):
        return kind in _PATHS and _is_redis(url, scheme, kind, options)
    match url.scheme:
        case "memory":
            return url.geturl() in ("memory:", "memory://")
        case "file":
            return not url.netloc and len(url.path) > 1 and not options
        case "unix":
            database = re.fullmatch(_DATABASE, options.get("db", "0"), re.ASCII)
            return bool(len(url.path) > 1 and database) and options.keys() <= {"db"}
        case "s3" | "gs" | "az":
            allowed = OBJECT_STORES[url.scheme]
            return bool(_BUCKET.fullmatch(url.netloc)) and options.keys() <= allowed
        case "aiocache":
            name = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", url.netloc, re.ASCII)
            return not url.path and name is not None
    return False


def _is_redis(url: SplitResult, scheme: str, kind: str, options: dict[str, str]) -> bool:
    """Whether servers, path and options are valid for this kind of Redis. Raises ValueError."""
    found = servers(url.netloc, 1)
    allowed = _TLS_OPTIONS if scheme == "rediss" else frozenset()
    several = bool(kind) or len(found) == 1
    return several and bool(_PATHS[kind].fullmatch(url.path)) and options.keys() <= allowed
