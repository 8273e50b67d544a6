"""The description of a served workflow, as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from workbench import __version__
from workbench_serve.fields import Fields, TypedField
from workbench_serve.settings import Settings

_COST = {
    "type": "object",
    "properties": {
        "calls": {"type": "integer"},
        "tokens": {"type": "integer"},
        "usd": {"type": "number", "description": "as far as prices are known"},
        "seconds": {"type": "number"},
    },
}
_PLACE = {"type": "integer", "description": "of the configuration that answered; only of a file with several"}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
                "request": {"type": "string", "description": "its number in the server's log"},
            },
        }
    },
}
_FAILURES = {
    "401": "no token, or a wrong one",
    "413": "the request is too long",
    "422": "an input is missing, unknown or of another type; `param` names it",
    "500": "the workflow failed",
    "502": "the language model failed; the reason is in `type`",
    "503": "too many requests are waiting; retry after Retry-After",
    "504": "the deadline has passed",
}


_TRACE = {
    "name": "trace",
    "in": "query",
    "schema": {"type": "string", "enum": ["0", "1"]},
    "description": "1: also each node with its outputs and the answers of its models",
}


def describe(name: str, fields: Fields, settings: Settings) -> dict[str, Any]:
    """Return the content of /openapi.json."""
    answer = {
        "type": "object",
        "properties": {
            "outputs": _object(fields.outputs),
            "cost": _COST,
            **({"trace": {"type": "array"}} if settings.trace else {}),
            "configuration": _PLACE,
        },
        "required": ["outputs", "cost"],
    }
    operation = {
        "operationId": "predict",
        "summary": f"Run the workflow {name} on one input",
        "parameters": [_TRACE] if settings.trace else [],
        "requestBody": {"required": True, "content": _json({"$ref": "#/components/schemas/Inputs"})},
        "responses": {
            "200": {"description": "what the workflow wrote", "content": _json(answer)},
            **{
                status: {"description": why, "content": _json({"$ref": "#/components/schemas/Error"})}
                for status, why in _FAILURES.items()
            },
        },
    }
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": name, "version": __version__},
        "paths": {"/predict": {"post": operation}},
        "components": {"schemas": {"Inputs": _object(fields.inputs, closed=True), "Error": _ERROR}},
    }
    if settings.token is not None:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


def _object(fields: tuple[TypedField, ...], closed: bool = False) -> dict[str, Any]:
    properties = {field.name: field.schema for field in fields}
    found: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
    return {**found, "additionalProperties": False} if closed else found


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
