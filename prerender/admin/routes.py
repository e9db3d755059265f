"""Routes of the admin API: each stands at its handler, and openapi.py describes it from there.

A handler is a method with ``@route``. Its parameters are a model of the query (Parameters), a model of
the JSON body (Body), the request, or a part of the path by name. It returns what is sent as JSON, a
response, or None for 204. Its docstring begins with the summary; what follows describes the result.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from aiohttp import web

from prerender.admin.parameters import Body, Parameters, body_of, query_of

API = "/api/v1"
# Errors of everything that renders.
RENDERS = (409, 502, 503, 504)

RouteHandler = TypeVar("RouteHandler", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True)
class Operation:
    """A route: the types of the handler's parameters by name (``inputs``), and of its ``result``.

    ``errors``: statuses besides 400, 401, 403 and 413. ``media``: the media type of the result, '' for
    JSON. ``takes``: the model of a body that the handler reads itself. ``token``: whether it needs
    authentication.
    """

    method: str
    path: str
    summary: str
    description: str
    inputs: dict[str, Any]
    result: Any
    errors: tuple[int, ...] = ()
    media: str = ""
    takes: type[Body] | None = None
    token: bool = True

    @property
    def query(self) -> type[Parameters] | None:
        """The model of the query parameters."""
        return next((one for one in self.inputs.values() if issubclass(one, Parameters)), None)

    @property
    def body(self) -> type[Body] | None:
        """The model of the body."""
        return next((one for one in self.inputs.values() if issubclass(one, Body)), self.takes)


def route(
    method: str, *paths: str, returns: Any = None, **options: Any
) -> Callable[[RouteHandler], RouteHandler]:
    """Make a method the handler of ``method`` at ``paths``, which are relative to /api/v1.

    ``returns``: the type of the result of a handler that returns a response. ``options``: of Operation.
    """

    def mark(handler: RouteHandler) -> RouteHandler:
        hints = get_type_hints(handler)
        result = hints.pop("return")
        summary, _, description = (inspect.getdoc(handler) or "").partition("\n\n")
        texts = (summary.rstrip("."), " ".join(description.split()))
        handler.operations = [  # type: ignore[attr-defined]
            Operation(method, path, *texts, hints, returns or result, **options) for path in paths
        ]
        return handler

    return mark


def operations_of(kind: type) -> Iterator[tuple[str, Operation]]:
    """The operations of a class, with the names of their handlers."""
    for name, member in vars(kind).items():
        for operation in getattr(member, "operations", ()):
            yield name, operation


class Routes:
    """The application of a listener, and the operations that were added to it."""

    def __init__(self, app: web.Application) -> None:
        self.app = app
        self.operations: list[Operation] = []

    def add(self, *parts: object) -> None:
        """Add the handlers of objects."""
        for part in parts:
            for name, operation in operations_of(type(part)):
                handler = _adapted(getattr(part, name), operation.inputs)
                add = getattr(self.app.router, f"add_{operation.method.lower()}")
                add(f"{API}{operation.path}", handler)
                self.operations.append(operation)


def _adapted(
    handler: Callable[..., Awaitable[Any]], inputs: dict[str, Any]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def respond(request: web.Request) -> web.StreamResponse:
        arguments: dict[str, Any] = {}
        for name, kind in inputs.items():
            if issubclass(kind, Parameters):
                arguments[name] = query_of(request, kind)
            elif issubclass(kind, Body):
                arguments[name] = body_of(await request.read(), kind)
            else:
                arguments[name] = request.match_info[name] if kind is str else request
        result = await handler(**arguments)
        if isinstance(result, web.StreamResponse):
            return result
        return web.Response(status=204) if result is None else web.json_response(result)

    return respond
