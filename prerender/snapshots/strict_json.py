"""Builds frozen values from untrusted JSON: every field has the declared type, or ValueError. Pure.

Not pydantic: it rejects strings with lone surrogates, which represent octets that are not UTF-8.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Build = Callable[[Any], Any]


def read(kind: type[T], text: bytes | str, defaults: Mapping[str, Any] | None = None) -> T:
    """Parse JSON to a value of type ``kind``. Raises only ValueError.

    ``defaults``: of members that the object may lack.

    Dataclasses are objects with exactly their fields, named tuples and tuples are arrays, and numbers
    are finite. A ``float`` may be an integer.
    """
    try:
        value = loads(text)
        if defaults and type(value) is dict:
            value = {**defaults, **value}
        return cast("T", builder(cast("Any", kind))(value))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def loads(text: bytes | str) -> Any:
    """Parse JSON according to RFC 8259, without NaN and Infinity. Raises ValueError, RecursionError."""
    return json.loads(text, parse_constant=_no_number)


@lru_cache(maxsize=256)
def builder(kind: Any) -> Build:
    """A function that builds a value of type ``kind`` from parsed JSON. It raises ValueError."""
    origin = get_origin(kind)
    if origin is tuple:
        return _tuple_of(get_args(kind))
    if origin is UnionType:
        return _optional(next(one for one in get_args(kind) if one is not type(None)))
    if origin is Literal:
        return _one_of(get_args(kind))
    if is_dataclass(kind):
        return _dataclass(cast("type[Any]", kind))
    if kind is float:
        return _float
    if hasattr(kind, "_fields"):
        items = _tuple_of(tuple(get_type_hints(kind).values()))
        return lambda value: kind._make(items(value))
    return _exactly(kind)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _wrong(value: Any, wanted: str) -> NoReturn:
    raise ValueError(f"{type(value).__name__} instead of {wanted}")


def _exactly(kind: type[Any]) -> Build:
    def build(value: Any) -> Any:
        return value if type(value) is kind else _wrong(value, kind.__name__)

    return build


def _float(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        _wrong(value, "a number")
    number = float(value) if abs(value) < 1e300 else float("inf")
    return number if abs(number) < float("inf") else _wrong(value, "a number of this size")


def _one_of(values: tuple[Any, ...]) -> Build:
    def build(value: Any) -> Any:
        return value if isinstance(value, str) and value in values else _wrong(value, str(values))

    return build


def _optional(kind: Any) -> Build:
    some = builder(kind)
    return lambda value: None if value is None else some(value)


def _tuple_of(kinds: tuple[Any, ...]) -> Build:
    if kinds[-1:] == (...,):
        each = builder(kinds[0])
        return lambda value: tuple(map(each, value)) if type(value) is list else _wrong(value, "[]")
    builds = tuple(map(builder, kinds))

    def build(value: Any) -> Any:
        if type(value) is not list or len(value) != len(builds):
            _wrong(value, f"an array of {len(builds)}")
        return tuple(one(item) for one, item in zip(builds, value, strict=True))

    return build


def _dataclass(kind: type[Any]) -> Build:
    hints = get_type_hints(kind)
    builds = [(field.name, builder(hints[field.name])) for field in fields(kind) if field.init]

    def build(value: Any) -> Any:
        if type(value) is not dict or len(value) != len(builds):
            _wrong(value, f"an object of {len(builds)} members")
        try:
            return kind(*[one(value[name]) for name, one in builds])
        except KeyError as missing:
            raise ValueError(f"no {missing}") from None

    return build
