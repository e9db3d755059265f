"""The query parameters and bodies that the admin API accepts. Pure.

They are checked with these models, and openapi.json is generated from them by scripts/openapi.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Literal, Self, TypeVar, get_origin

from aiohttp import web
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from prerender.config.types import CrawlerClass
from prerender.config.validation import in_words
from prerender.extensions.dashboard.list_rows import Sort, State
from prerender.extensions.dashboard.snapshot_models import Id
from prerender.snapshots.snapshot import CacheResult
from prerender.telemetry.records import Kind

_LONGEST_SHOWN = 200
_LONGEST_SITE = 300

P = TypeVar("P", bound=BaseModel)


def query_of(request: web.Request, model: type[P]) -> P:
    """The query parameters of a request; empty and unknown ones are ignored. Raises ValueError."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if values := [value for value in request.query.getall(name, ()) if value]:
            found[name] = values if get_origin(field.annotation) is list else values[0]
    try:
        return model.model_validate(found)
    except ValidationError as error:
        raise ValueError(_explain(model, error.errors(include_url=False)[0])) from None


def body_of(body: bytes | bytearray, model: type[P]) -> P:
    """Parse a JSON body. Raises ValueError."""
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise ValueError(_explain(model, error.errors(include_url=False)[0])) from None


def _explain(model: type[BaseModel], detail: ErrorDetails) -> str:
    name = str(detail["loc"][0]) if detail["loc"] else ""
    known = ", ".join(model.model_fields)
    match detail["type"]:
        case "missing":
            return f"{name}: is required"
        case "extra_forbidden":
            return f"{name[:_LONGEST_SHOWN]!r} is unknown: give an object with {known}"
        case "json_invalid":
            return "the body is not JSON"
        case "model_type":
            return f"give an object with {known}"
    message = in_words(detail)
    return f"{name}: {_shown(detail['input'])}: {message}" if name else message


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class _Query(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="forbid")


Count = Annotated[int, Field(ge=0)]
Status = Annotated[int, Field(ge=0, le=599)]
Limit = Annotated[int, Field(ge=0, le=200)]
Order = Literal["asc", "desc"]


class _List(_Query):
    search: str = ""
    """A substring, case-insensitive."""
    status: Status = 0
    """A status such as 404, or 4 for all 4xx."""
    limit: Limit = 50
    """The maximum number of results; 0 counts as 1."""
    cursor: str = ""
    """The cursor "next" of the previous page of results."""


class CrawlersQuery(_Query):
    period: Literal["hour", "start"] = "hour"


class RequestsQuery(_List):
    page: str = ""
    """The URL of a page: only requests for it."""
    crawler: Literal[CrawlerClass, "others", ""] = ""
    """A class of crawlers; "others": unknown clients that requested ugly URLs."""
    decision: Literal[Kind, ""] = ""
    cache: CacheResult | Literal[""] = ""
    sort: Literal["time", "status", "seconds", "bytes", "target"] = "time"
    order: Order = "desc"


class SnapshotsQuery(_List):
    state: Literal[State, ""] = ""
    least_age: Count = 0
    """Seconds."""
    most_age: Count = 10**9
    """Seconds."""
    sort: Sort = "age"
    order: Order = "asc"


class PageQuery(_Query):
    url: str
    """The URL of a page of the site, pretty or ugly; with or without scheme and host."""


class HistoryQuery(_Query):
    old: Annotated[int, Field(ge=-1)] = -1
    """The default, -1, is the version before "new"."""
    new: Count = 0
    """0 is the latest version."""


def _is_address(text: str) -> str:
    try:
        ip_address(text)
    except ValueError:
        raise ValueError("give an IP address") from None
    return text


class ExplainQuery(_Query):
    url: str
    """A pretty, ugly or ordinary URL; with or without scheme and host."""
    method: str = "GET"
    user_agent: str = ""
    """The User-Agent of the client."""
    remote: Annotated[str, AfterValidator(_is_address)] = "127.0.0.1"
    """The client's address."""
    header: list[str] = []
    """A header of the request, as "Name: value"; may be repeated."""


class LogIn(_Body):
    token: str


class RenderBody(_Body):
    """Either the URL of a page or the id of a stored snapshot."""

    url: Annotated[str, Field(min_length=1)] | None = None
    """A page of the site; rendered as the desktop variant in the browser's default language."""
    id: Id | None = None
    """The id of a stored snapshot; its page is rendered as the same variant."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.url is None) == (self.id is None):
            raise ValueError("give either url or id")
        return self


def _listed(value: object) -> object:
    if not isinstance(value, str | list):
        raise ValueError("give a string or a list of strings")
    return [value] if isinstance(value, str) else value


Texts = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]


class PurgeBody(_Body):
    """At least one of url, prefix, pattern and tag, each a string or a list of strings; or all."""

    url: Texts = []
    """Pretty or ugly URLs of the site, with or without scheme and host."""
    prefix: Texts = []
    """The beginnings of URLs."""
    pattern: Texts = []
    """URLs with * for any text."""
    tag: Texts = []
    """Cache tags."""
    all: bool = False
    soft: bool = False
    """Served as stale until there is a new one."""
    count: bool = False
    """Also count the snapshots, which reads the list of all in the store."""


class ImportBody(_Body):
    site: Annotated[str, Field(max_length=_LONGEST_SITE)]
    """The site of the export: scheme, host and port. It must be the proxy's."""
    pages: list[Mapping[str, Any]]
    """Entries of the index of an export, each with its "body"."""
    fresh: bool = False
    """The snapshots count as rendered now."""
