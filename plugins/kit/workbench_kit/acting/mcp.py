"""Tools of MCP servers on stdio (extra `[mcp]`): lists of tools, and results of calls."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from workbench.base.concurrency import remaining_seconds
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import NodeError, SpecError
from workbench_kit.acting.mcp_session import RowSessions, Server, ServerSession, current_sessions, field_of
from workbench_kit.prompting import image_url

#: Number of characters of a tool's error that are searched for keys.
_LONGEST_ERROR = 1_000_000
#: Maximum number of characters of all images of a result.
LARGEST_IMAGES = 20_000_000
#: Timeout in seconds for a list of tools. A command such as npx may download the server first.
LIST_SECONDS = 60.0
#: Maximum number of pages of a list.
_MAX_PAGES = 100
_listing = threading.Lock()


@dataclass(frozen=True)
class Listed:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any]


def list_tools(server: Server) -> Sequence[Listed]:
    """List the tools of a server. A process asks it once, also if several callers ask at the same time.

    Raises SpecError if the list is not available.
    """
    with _listing:
        return _list(server, server.variables())


def is_listed(server: Server) -> bool:
    """Return True if the server was asked already."""
    return (server, server.variables()) in _lists


_lists: dict[tuple[Server, tuple[tuple[str, str], ...]], Sequence[Listed]] = {}


def _list(server: Server, variables: tuple[tuple[str, str], ...]) -> Sequence[Listed]:
    if (server, variables) not in _lists:
        session = ServerSession(server)
        try:
            found = session.ask(_all_pages, LIST_SECONDS)
        except Exception as error:
            cause = (
                f"no answer within {LIST_SECONDS:g} s" if isinstance(error, TimeoutError) else session.explain(error)
            )
            raise SpecError(
                f"the MCP server `{server}` gave no list of its tools: {cause}",
                hint=f"Run the command in {server.base} to see why; correct it, or its `env`.",
            ) from None
        finally:
            session.close()
            session.wait()
        if not found:
            hint = "Some servers list tools only for the keys or folders that they are given: see `env`."
            raise SpecError(f"the MCP server `{server}` has no tools", hint=hint)
        _lists[server, variables] = found
    return _lists[server, variables]


async def _all_pages(session: Any) -> Sequence[Listed]:
    from mcp.types import PaginatedRequestParams

    found: list[Listed] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await session.list_tools(params=None if cursor is None else PaginatedRequestParams(cursor=cursor))
        for tool in page.tools:
            schema = field_of(tool, "input_schema", "inputSchema")
            told = tool.description or field_of(tool, "title", "title") or ""
            found.append(Listed(tool.name, inspect.cleandoc(told), _sound(schema)))
        if not (cursor := field_of(page, "next_cursor", "nextCursor")):
            break
    return found


def _sound(schema: Any) -> Mapping[str, Any]:
    """Return the schema of arguments without malformed parts."""
    kinds = {"properties": is_dict, "required": lambda names: is_list(names) and all(isinstance(n, str) for n in names)}
    given = schema if is_dict(schema) else {}
    return {key: part for key, part in given.items() if key not in kinds or kinds[key](part)}


class McpCall:
    """Calls one tool of a server: in the session of the row, or without a row in a session of its own."""

    def __init__(self, server: Server, name: str):
        self.server, self.name = server, name

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        sessions = current_sessions()
        if sessions is not None:
            return self._call(sessions, arguments)
        with closing(RowSessions()) as sessions:
            return self._call(sessions, arguments)

    def _call(self, sessions: RowSessions, arguments: Mapping[str, Any]) -> Any:
        seconds = remaining_seconds()
        # A little earlier than the deadline, so that the server is ended before its thread is given up.
        result = sessions.call(self.server, self.name, arguments, None if seconds is None else max(0.1, seconds - 3))
        value = _value(result, self.name, self.server)
        sessions.note(self.server, self.name, arguments)
        return value


def _value(result: Any, name: str, server: Server) -> Any:
    """Convert the result of a call to JSON: a text, an object, an image as a data URI, or a list of texts and images.

    Raises NodeError("tool") for a failure reported by the server.
    """
    parts = [_part(part, server) for part in field_of(result, "content", "content") or ()]
    text = "\n".join(part for part, is_image in parts if not is_image)
    structured = field_of(result, "structured_content", "structuredContent")
    if field_of(result, "is_error", "isError"):
        said = text or ("it failed without a word" if structured is None else _dumped(structured, name))
        raise NodeError("tool", f"{name}: {server.redacted(said[:_LONGEST_ERROR])[:500]}")
    images = [part for part, is_image in parts if is_image]
    if (size := sum(map(len, images))) > LARGEST_IMAGES:
        raise NodeError("tool", f"{name}: a result of images of {size} characters, over {LARGEST_IMAGES}")
    dumped = None if structured is None else _dumped(structured, name)
    told = dumped is None or _says([part for part, is_image in parts if not is_image], structured)
    if images:
        shown = [part for part, _ in parts] + ([] if told or dumped is None else [dumped])
        return shown[0] if len(shown) == 1 else shown
    if dumped is None or not text.strip():
        return text if dumped is None else structured
    return structured if told else f"{text}\n{dumped}"


def _says(texts: Sequence[str], structured: Any) -> bool:
    """Return True if the texts of a result are the JSON of its structured part.

    Servers wrap a value that is no object under `result`, and split a list into one text per item.
    """
    plain = structured["result"] if is_dict(structured) and structured.keys() == {"result"} else structured
    said = [_loaded(text) for text in texts]
    wanted = [structured, plain, *([str(plain)] if isinstance(plain, str | int | float | bool) else [])]
    return "\n".join(texts) in wanted or (len(said) == 1 and said[0] in wanted) or (is_list(plain) and said == plain)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _dumped(value: Any, name: str) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        raise NodeError("tool", f"{name}: a result that is nested too deeply") from None


def _part(part: Any, server: Server) -> tuple[str, bool]:
    """Return (a part of a result, whether it is an image)."""
    kind, inside = getattr(part, "type", ""), getattr(part, "resource", None)
    mime = str(field_of(inside or part, "mime_type", "mimeType") or "a file")
    data = getattr(part, "data", None) or getattr(inside, "blob", None)
    if data and mime.startswith("image/"):
        try:
            return image_url(f"data:{mime};base64,{data}", server.base), True
        except NodeError as error:
            return f"(an image that cannot be shown: {error})", False
    if data:
        return f"({mime}, which cannot be shown)", False
    if kind == "resource_link":
        return f"{getattr(part, 'name', '')}: {getattr(part, 'uri', '')}", False
    return str(getattr(part, "text", None) or getattr(inside, "text", None) or ""), False
