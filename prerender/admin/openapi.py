"""Describes the admin API as OpenAPI 3.1, from the operations of its routes and their models. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import get_original_bases, is_typeddict

from prerender.admin.auth import COOKIE
from prerender.admin.models import Problem
from prerender.admin.routes import API, Operation

_DESCRIPTION = """\
The API of the proxy's operators. Points in time are Unix seconds, durations are in seconds, and \
sizes in bytes. A token is required if [admin] token is set. Requests that change something have a \
body of type application/json. All errors are problem details (RFC 9457)."""
_PROBLEM = {"$ref": "#/components/responses/Problem"}

Schema = dict[str, Any]


class _Schemas(GenerateJsonSchema):
    """Without titles, which would repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def document(operations: Iterable[Operation]) -> Schema:
    """The OpenAPI document."""
    operations = list(operations)
    kinds = _kinds(operations)
    generated, defined = TypeAdapter.json_schemas(
        [(kind, "validation", adapter) for kind, adapter in kinds.items()],
        ref_template="#/components/schemas/{model}",
        schema_generator=_Schemas,
    )
    models = defined["$defs"]
    _described(models, kinds)
    schemas = {kind: schema for (kind, _), schema in generated.items()}
    paths: dict[str, Schema] = {}
    for operation in operations:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = _operation(operation, schemas, models)
    used = json.dumps([paths, models])
    problem = {"application/problem+json": {"schema": schemas[Problem]}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Prerender proxy, admin listener",
            "version": "1",
            "description": _DESCRIPTION,
        },
        "servers": [{"url": API}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": {
                name: schema
                for name, schema in models.items()
                if f'/{name}"' in used or name == "Problem"
            },
            "responses": {
                "Problem": {"description": "A description of the error.", "content": problem}
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _kinds(operations: Iterable[Operation]) -> dict[Any, TypeAdapter[Any]]:
    """The models of operations. Typed dictionaries get descriptions and allow no other keys."""
    classes: dict[Any, None] = {Problem: None}
    for operation in operations:
        result = None if operation.media else operation.result
        classes |= dict.fromkeys((operation.query, operation.body, result))
    kinds = [kind for kind in classes if kind not in (None, type(None))]
    models = dict.fromkeys(part for kind in kinds for part in _typed_dictionaries(kind))
    for model in models:
        model.__pydantic_config__ = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    return {kind: TypeAdapter(kind) for kind in dict.fromkeys((*kinds, *models))}


def _typed_dictionaries(kind: Any) -> Iterator[Any]:
    """Those that a model consists of."""
    if is_typeddict(kind):
        yield kind
        for part in (*get_original_bases(kind), *get_type_hints(kind).values()):
            yield from _typed_dictionaries(part)
    for part in get_args(kind):
        yield from _typed_dictionaries(part)


def _described(definitions: dict[str, Schema], kinds: Iterable[Any]) -> None:
    """Complete the definitions of models."""
    for model in filter(is_typeddict, kinds):
        # Pydantic does not look for docstrings in the bases of a typed dictionary.
        for base in filter(is_typeddict, get_original_bases(model)):
            definitions[model.__name__]["properties"] |= definitions[base.__name__]["properties"]
    for schema in definitions.values():
        schema.pop("title", None)
        for part in (schema, *schema.get("properties", {}).values()):
            if "description" in part:
                part["description"] = " ".join(part["description"].split())


def _operation(
    operation: Operation, schemas: Mapping[Any, Schema], definitions: Mapping[str, Schema]
) -> Schema:
    result, query, body = operation.result, operation.query, operation.body
    operation_object: Schema = {"summary": operation.summary}
    errors = {401, 403, *operation.errors}
    if not operation.token:
        operation_object["security"] = []
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    if query is not None:
        parameters += _parameters(definitions[query.__name__])
    if parameters:
        operation_object["parameters"] = parameters
    if body is not None:
        content = {"application/json": {"schema": schemas[body]}}
        operation_object["requestBody"] = {"required": True, "content": content}
        errors.add(413)
    if query or body:
        errors.add(400)
    response: Schema = {"description": operation.description or "Success."}
    if operation.media:
        binary = {} if operation.media.startswith("text/") else {"format": "binary"}
        response["content"] = {operation.media: {"schema": {"type": "string", **binary}}}
    elif result is not type(None):
        response["content"] = {"application/json": {"schema": schemas[result]}}
    operation_object["responses"] = {
        "200" if "content" in response else "204": response,
        **{str(status): _PROBLEM for status in sorted(errors)},
    }
    return operation_object


def _parameters(query: Schema) -> Iterator[Schema]:
    for name, described in query["properties"].items():
        schema = dict(described)
        parameter: Schema = {"name": name, "in": "query"}
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        if name in query.get("required", ()):
            parameter["required"] = True
        yield {**parameter, "schema": schema}
