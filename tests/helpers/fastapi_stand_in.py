"""What the documentation uses of FastAPI, over Starlette, for machines without FastAPI. Routes take one JSON body."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse


class FastAPI(Starlette):
    """Routes with one parameter, a pydantic model that is read from the body."""

    def post(self, path: str) -> Callable[[Any], Any]:
        def register(function: Any) -> Any:
            (name,) = inspect.signature(function).parameters
            model = typing.get_type_hints(function)[name]

            async def handle(request: Request) -> JSONResponse:
                return JSONResponse(await function(model.model_validate(await request.json())))

            self.add_route(path, handle, methods=["POST"])
            return function

        return register


def install() -> None:
    """Make `import fastapi` give FastAPI itself where it is installed, else this."""
    try:
        import fastapi  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        module = types.ModuleType("fastapi")
        vars(module).update(FastAPI=FastAPI, HTTPException=HTTPException)
        sys.modules["fastapi"] = module
