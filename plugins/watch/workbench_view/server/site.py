"""Shared state of all pages: the database, the templates, and how a page or a change is answered."""

from __future__ import annotations

import hmac
import queue
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from workbench.errors import WorkbenchError
from workbench.store import ReadOnlyStore, Store, find_exact_run
from workbench_view.page import environment

#: Maximum bytes of a form, characters of a text before it is cut, and idle database connections.
MAX_FORM, CUT, KEPT = 65_536, 4000, 8

#: Functions that make a page from the database, and that make a change from a form.
Page = Callable[["Site", Store, Request], Response]
Change = Callable[["Site", Request, Mapping[str, str]], str]
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class LabelFiles:
    """The files of answers to label, and of the labels.

    run_labels: the file for answers of runs. rows: an additional file of rows to label; row_labels: the file for these.
    field: the field of the rows with the answer.
    """

    run_labels: Path = Path("labels.jsonl")
    rows: Path | None = None
    row_labels: Path | None = None
    field: str = "output"


class NotFound(Exception):
    """There is no such page. Its text is shown."""


class Refused(Exception):
    """A change that is refused. Its text is shown."""

    def __init__(self, message: str, status: int = 403):
        super().__init__(message)
        self.status = status


class Site:
    """The pages over one run database.

    form_token: must be in each form; a page of another site cannot read it.
    log: takes a line for each error that is not the reader's.
    labels: the answers to label, and the files for the labels.
    start: starts a run by its name; None: pages cannot start runs.
    """

    def __init__(
        self,
        database: str | Path,
        log: Callable[[str], None] = lambda line: None,
        labels: LabelFiles | None = None,
        start: Callable[[str], None] | None = None,
    ):
        self.start = start
        self.labels, self.writing_labels = labels or LabelFiles(), threading.Lock()
        self.database, self.log, self.form_token = Path(database), log, secrets.token_urlsafe(32)
        self._idle: queue.LifoQueue[ReadOnlyStore] = queue.LifoQueue(KEPT)
        self._kept: dict[Any, Any] = {}
        self._release(ReadOnlyStore(self.database))  # checked as a whole, once

    def _borrow(self) -> ReadOnlyStore:
        while True:
            try:
                store = self._idle.get_nowait()
            except queue.Empty:
                return ReadOnlyStore(self.database, check=False)
            if store.is_current():
                return store
            store.close()

    def _release(self, store: ReadOnlyStore) -> None:
        try:
            self._idle.put_nowait(store)
        except queue.Full:
            store.close()

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def page(self, make: Page) -> Endpoint:
        """Return an endpoint that only reads."""

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(self._answer, make, request)

        return answer

    def _answer(self, make: Page, request: Request) -> Response:
        try:
            store = self._borrow()
        except WorkbenchError as error:
            return self.error(request, 503, str(error))
        try:
            return make(self, store, request)
        except NotFound as error:
            return self.error(request, 404, str(error))
        except WorkbenchError as error:
            return self.error(request, 500, str(error))
        except Exception as error:
            number = secrets.token_hex(4)
            self.log(f"{number} {request.url.path}: {type(error).__name__}: {error}")
            return self.error(
                request, 500, f"This page cannot be shown. The reason is in the terminal, under {number}."
            )
        finally:
            self._release(store)

    def change(self, make: Change) -> Endpoint:
        """Return an endpoint that changes something, only from a form of our own pages. `make` returns the next address
        to show."""

        async def answer(request: Request) -> Response:
            try:
                form = await self._form(request)
                return RedirectResponse(await run_in_threadpool(make, self, request, form), 303)
            except (Refused, NotFound) as error:
                return self.error(request, getattr(error, "status", 404), str(error))
            except WorkbenchError as error:
                return self.error(request, 500, str(error))

        return answer

    async def _form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form. Raises Refused for one that a page of another origin could have sent."""
        origin = request.headers.get("origin")
        if origin != f"{request.url.scheme}://{request.headers.get('host')}":
            raise Refused("A change must come from a page of this server.")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Refused("A change is sent as a form.", 415)
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM:
                    raise Refused(f"A form has at most {MAX_FORM} bytes.", 413)
        except ClientDisconnect:
            raise Refused("The form did not arrive.", 400) from None
        try:
            found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100)
        except ValueError:
            raise Refused("A form has at most 100 fields.", 413) from None
        form = {name: values[-1] for name, values in found.items()}
        if not hmac.compare_digest(form.pop("form_token", "").encode(), self.form_token.encode()):
            raise Refused("This form is of an earlier start of the server: load its page anew, then send it.")
        return form

    def render(self, request: Request, template: str, code: int = 200, **values: Any) -> Response:
        """Render a page from its template. Texts are escaped, so they are shown and never run."""
        whole = request.query_params.get("whole") == "1"
        shown = {"url": url, "form_token": self.form_token, "cut": CUT if not whole else None, "here": _here(request)}
        shown |= {"has_rows": self.labels.rows is not None, "may_start": self.start is not None}
        return HTMLResponse(environment().get_template(f"live/{template}").render(shown | values), code)

    def error(self, request: Request, status: int, message: str) -> Response:
        # A run's form is refused after the run was found, except for its token.
        run = quote(str(request.path_params.get("run", "")), safe="") if status == 422 else ""
        return self.render(request, "error.html", status, message=message, status=status, run=run)

    def remember(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return a cached value, or make it: plots of finished runs, and rows of unchanged data."""
        if key not in self._kept:
            if len(self._kept) >= 64:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[key] = make()
        return self._kept[key]


def load_libraries() -> None:
    """Load the libraries for plots and tests, so that no page waits for them."""
    import importlib

    for name in ("numpy", "scipy.stats", "scipy.optimize", "networkx"):
        importlib.import_module(name)
    environment()


def url(path: str, **parameters: Any) -> str:
    """Return a URL of this server. Parameters that are None or empty are left out; a list is repeated."""
    asked = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(asked, doseq=True, errors='replace')}" if asked else path


def _here(request: Request) -> str:
    return url(request.url.path, **{k: v for k, v in request.query_params.items() if k != "whole"})


def find_run(store: Store, request: Request) -> Any:
    """Return the run that the path names. Raises NotFound."""
    name = str(request.path_params["run"])
    if (row := find_exact_run(store, name)) is None:
        raise NotFound(f"There is no run '{name[:80]}' in this database.")
    return row


def whole_number(request: Request, name: str) -> int:
    """Return a number of the URL, at least 1."""
    text = request.query_params.get(name, "")
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 9 else 1
