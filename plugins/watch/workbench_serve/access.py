"""Access control: a token, or, without one, only this machine."""

from __future__ import annotations

import hmac
from functools import lru_cache

from starlette.requests import Request

from workbench.lm import is_loopback
from workbench_serve.errors import RequestError
from workbench_serve.settings import Settings


def check_access(request: Request, settings: Settings) -> None:
    """Raise RequestError for a request without the token. If none is set, raise it for one that another site's web page
    could have sent through a browser on this machine.

    Without a token, a server on loopback answers only to names of this machine: a page whose own name was made to point
    here (DNS rebinding) still sends that name. A page that sends to 127.0.0.1 is recognized by its origin.
    """
    if settings.token is not None:
        _check_token(request, settings.token)
    elif settings.is_local:
        if not _is_here(f"http://{request.headers.get('host', '')}"):
            raise RequestError(403, "forbidden", "Without a token, this server answers only to localhost.")
        origin = request.headers.get("origin")
        if origin is not None and not _is_here(origin):
            raise RequestError(403, "forbidden", "Without a token, this server answers no page of another origin.")


#: Clients of one server send few different names.
_is_here = lru_cache(maxsize=64)(is_loopback)


def _check_token(request: Request, token: str) -> None:
    kind, _, shown = request.headers.get("authorization", "").partition(" ")
    same = hmac.compare_digest(shown.strip().encode("utf-8", "replace"), token.encode())
    if kind.lower() != "bearer" or not same:
        raise RequestError(
            401,
            "unauthorized",
            "Send the token as `Authorization: Bearer TOKEN`.",
            headers={"WWW-Authenticate": "Bearer"},
        )


def check_type(request: Request) -> None:
    """Raise RequestError for a body that is not declared as JSON. A page of another origin can declare it only if the
    server consents, and this one never does."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(415, "unsupported_media_type", "Send Content-Type: application/json.")
