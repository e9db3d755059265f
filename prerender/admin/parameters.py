"""The query parameters and bodies that the admin API accepts. Pure.

They are checked with these models, and openapi.py describes the API by them.
"""

import base64
import json
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated, Any, TypeVar, get_origin

from aiohttp import web
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import ErrorDetails

from prerender.config.validation import in_words

_LONGEST_SHOWN = 200

P = TypeVar("P", bound=BaseModel)
# In a sorted list: the value that it is sorted by, and the key.
CursorPlace = tuple[float | str, str]


def query_of(request: web.Request, model: type[P]) -> P:
    """The query parameters of a request; empty and unknown ones are ignored. Raises ValueError."""
    parameters: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if values := [value for value in request.query.getall(name, ()) if value]:
            parameters[name] = values if get_origin(field.annotation) is list else values[0]
    try:
        return model.model_validate(parameters)
    except ValidationError as error:
        raise ValueError(_explain(model, error.errors(include_url=False))) from None


def body_of(body: bytes | bytearray, model: type[P]) -> P:
    """Parse a JSON body. Raises ValueError."""
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise ValueError(_explain(model, error.errors(include_url=False))) from None


async def large_body(request: web.Request, most: int) -> bytearray:
    """The body of a request, of at most so many bytes. Raises HTTPRequestEntityTooLarge."""
    body = bytearray()
    async for part in request.content.iter_any():
        body += part
        if len(body) > most:
            text = f"the body is larger than {most // 1024**2} MiB"
            raise web.HTTPRequestEntityTooLarge(most, len(body), text=text)
    return body


def _explain(model: type[BaseModel], details: Sequence[ErrorDetails]) -> str:
    detail, *others = details
    for other in others:
        # What each part of a union accepts is an error of its own.
        if (
            detail["type"] == other["type"] == "literal_error"
            and detail["loc"][:1] == other["loc"][:1]
        ):
            detail["ctx"]["expected"] += other["ctx"]["expected"]
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


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="forbid")


def _is_address(text: str) -> str:
    try:
        ip_address(text)
    except ValueError:
        raise ValueError("give an IP address") from None
    return text


class ExplainQuery(Parameters):
    url: str
    """A pretty, ugly or ordinary URL; with or without scheme and host."""
    method: str = "GET"
    user_agent: str = ""
    """The User-Agent of the client."""
    remote: Annotated[str, AfterValidator(_is_address)] = "127.0.0.1"
    """The client's address."""
    header: list[str] = []
    """A header of the request, as "Name: value"; may be repeated."""


def _listed(value: object) -> object:
    if not isinstance(value, str | list):
        raise ValueError("give a string or a list of strings")
    return [value] if isinstance(value, str) else value


Strings = Annotated[list[str], BeforeValidator(_listed, json_schema_input_type=str | list[str])]
Texts = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]


class PurgeBody(Body):
    """At least one of url, prefix, pattern and tag, each a string or a list of strings; or only all."""

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


def cursor_of(place: CursorPlace | None) -> str | None:
    """The cursor of the next page of a list; None at the end."""
    if place is None:
        return None
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(cursor: str) -> CursorPlace | None:
    """Decode a cursor. Raises ValueError."""
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        value, key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        raise ValueError("cursor: invalid for this list") from None
    if not isinstance(key, str) or not isinstance(value, str | int | float):
        raise ValueError("cursor: invalid for this list")
    return value, key
