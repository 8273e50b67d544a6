"""Errors for clients whose request fails. Details of the workflow stay in the log: they may name files, servers and
data that are not the client's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from workbench.errors import FailureKind, LMError, ServerDead, SpecError, WorkbenchError
from workbench.inference import PredictionError

#: Failures of the model's answer: the request may be fine, and another model may answer it.
_ANSWER = {FailureKind.REFUSED, FailureKind.EMPTY, FailureKind.CUT, FailureKind.UNPARSED}
#: Failures that the provider reports about the workflow's own request.
_PROVIDER = {FailureKind.BAD_REQUEST, FailureKind.TOO_LONG, FailureKind.UNSUPPORTED}


class RequestError(Exception):
    """A request that gets no answer.

    Args:
        status: of HTTP.
        kind: one word for programs, e.g. `timeout`.
        message: one sentence for people.
        field: the wrong input.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        self.status, self.kind, self.message = status, kind, message
        self.field, self.headers = field, dict(headers or {})
        super().__init__(message)

    def response(self, number: str) -> Response:
        """Return the error in OpenAI's form. number: of the request, as in the log."""
        error = {"message": self.message, "type": self.kind, "param": self.field, "code": self.kind, "request": number}
        return json_response({"error": error}, self.status, self.headers)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, "application/json")


def encode(value: Any) -> str:
    """Return JSON, with unknown objects as text, and NaN and the infinities as null."""
    try:
        return json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value, default=str), parse_constant=lambda name: None))


def explain(error: Exception) -> RequestError:
    """Turn an error of the workflow into an error for the client."""
    match error:
        case PredictionError():
            return _of_kind(FailureKind(str(error.prediction.failure)))
        case LMError():
            return _of_kind(error.kind)
        case ServerDead():
            return _of_kind(FailureKind.SERVER)
        case SpecError():
            return RequestError(500, "workflow", "The workflow cannot run. See the server's log.")
        case WorkbenchError():
            return RequestError(500, "workflow", "The workflow failed. See the server's log.")
        case _:
            return RequestError(500, "internal", "The server failed. See its log.")


def _of_kind(kind: FailureKind) -> RequestError:
    if kind.infrastructure or kind in _PROVIDER:
        return RequestError(502, kind, "The language model did not answer the workflow's request.")
    if kind in _ANSWER:
        return RequestError(502, kind, "The language model's answer could not be used.")
    return RequestError(500, kind, f"The workflow failed on this input ({kind}).")
