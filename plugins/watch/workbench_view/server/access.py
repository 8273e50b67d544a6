"""Access control and headers: the requested host name, the token, and the permissions of a browser."""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.lm import is_loopback

#: What a page may load: nothing from other servers, and nothing inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
#: The referrer is sent only to our own pages; without any, browsers send forms of these pages with `Origin: null`.
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::\d{1,5})?", re.IGNORECASE)


@dataclass(frozen=True)
class Access:
    """Access rules. token: required in requests; None: not required, only for loopback. hosts: further host names."""

    host: str = "127.0.0.1"
    token: str | None = None
    hosts: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def cookie(self) -> str | None:
        """Return the cookie that a browser keeps in place of the token, which it does not reveal."""
        return None if self.token is None else _digest(self.token, "cookie")

    def knows_host(self, header: str, server: str | None) -> bool:
        """Return True if requests for this host name are answered. Another site's page whose name was made to point
        here (DNS rebinding) still sends its own name. server: the address at which the request came in."""
        found = _HOST.fullmatch(header)
        return found is not None and found[1].lower() in self._names(server)

    def _names(self, server: str | None) -> frozenset[str]:
        if is_loopback(f"http://{_bracketed(self.host)}"):
            return frozenset({"localhost", _bracketed(self.host)}) | self.hosts
        wide = self.host in ("0.0.0.0", "::")
        here = {"localhost", socket.gethostname().lower()} if wide else set[str]()
        return frozenset({_bracketed(server if wide and server else self.host), *here}) | self.hosts


def _bracketed(host: str) -> str:
    return f"[{host.lower()}]" if ":" in host else host.lower()


def _digest(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


class Guard:
    """Wraps the application: answers only to the names of this server, requires the token, sets headers."""

    def __init__(self, app: ASGIApp, access: Access):
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # there are no web sockets: the connection is closed
            return await send({"type": "websocket.close", "code": 1008})

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refuse(scope)
        await (refused or self.app)(scope, receive, guarded)

    def _refuse(self, scope: Scope) -> Response | None:
        asked = HTTPConnection(scope)
        names = [value for name, value in scope["headers"] if name == b"host"]
        server = scope.get("server")
        host = names[0].decode("latin-1") if len(names) == 1 else ""
        if not self.access.knows_host(host, server[0] if server else None):
            return PlainTextResponse("This server does not answer to that name; --allow-host adds one.\n", 403)
        if self.access.token is None or self._is_known(asked):
            return None
        return self._let_in(asked)

    def _is_known(self, asked: HTTPConnection) -> bool:
        kind, _, shown = asked.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(shown.strip(), self.access.token):
            return True
        return _same(asked.cookies.get(_cookie_name(asked), ""), self.access.cookie)

    def _let_in(self, asked: HTTPConnection) -> Response:
        """Answer a request with the token in its URL: set a cookie, and redirect to the URL without the token."""
        pairs = parse_qsl(asked.url.query, keep_blank_values=True)
        shown = [value for name, value in pairs if name == "token"]
        if asked.scope["method"] not in ("GET", "HEAD") or not any(_same(one, self.access.token) for one in shown):
            text = "Open the address that `workbench view` printed, with the token.\n"
            return PlainTextResponse(text, 401, {"www-authenticate": "Bearer"})
        rest = urlencode([(name, value) for name, value in pairs if name != "token"])
        # One slash: a path of two would be the name of another server.
        path = "/" + asked.scope.get("raw_path", asked.url.path.encode()).decode("latin-1").lstrip("/")
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        name = _cookie_name(asked)
        answer.set_cookie(name, self.access.cookie or "", httponly=True, samesite="strict", path="/")
        return answer


def _cookie_name(asked: HTTPConnection) -> str:
    """Return the cookie's name, with the port, since cookies are shared by all ports of a machine."""
    server = asked.scope.get("server")
    return f"workbench_view_{server[1] if server else 0}"


def _same(shown: str, known: str | None) -> bool:
    return known is not None and hmac.compare_digest(shown.encode("utf-8", "replace"), known.encode())
