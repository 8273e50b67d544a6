"""The places of a request's texts in its body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import Message

#: Key for the place of a message in its body (`View.places`). It is not part of the message, and never sent.
PLACE = "#place"
Path = tuple[str | int, ...]
#: The field with the text, by type of part.
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "summary_text": "text", "refusal": "refusal"}


@dataclass(slots=True)
class Place:
    """The place of a message: entry, its index in the list of the body, if any; texts, the path of each text."""

    entry: int | None = None
    texts: list[Path] = field(default_factory=list)


@dataclass(slots=True)
class View:
    """A body as messages, tools and answer form, with the paths of the parts that may be replaced.

    tool_paths: for each tool its path, and its field with the schema of its parameters. earlier: number of messages
    that the body only refers to; they come first.
    """

    api: str
    messages: list[Message] = field(default_factory=list)
    tools: list[Mapping[str, Any]] = field(default_factory=list)
    form: Mapping[str, Any] | None = None
    places: list[Place] = field(default_factory=list)
    tool_paths: list[tuple[Path, str]] = field(default_factory=list)
    form_path: Path = ()
    earlier: int = 0

    def add(self, role: str, content: Any, path: Path, entry: int | None = None, **more: Any) -> None:
        """Add a message. content: the text or list of parts at the path."""
        if isinstance(content, str):
            self.put({"role": role, "content": content, **more}, entry, [path])
            return
        texts, found = list[Path](), list[dict[str, Any]]()
        for n, part in enumerate(content if is_list(content) else ()):
            name = _TEXTS.get(str(part.get("type"))) if is_dict(part) else None
            if name is not None and isinstance(part.get(name), str):
                texts.append((*path, n, name))
                found.append({"type": "text", "text": part[name]})
            elif is_dict(part) and (image := _image(part)) is not None:
                found.append({"type": "image_url", "image_url": image})
        self.put({"role": role, "content": joined(found), **more}, entry, texts)

    def put(self, message: dict[str, Any], entry: int | None = None, texts: Sequence[Path] = ()) -> None:
        """Add a message with its texts at these paths."""
        message[PLACE] = len(self.places)
        self.messages.append(message)
        self.places.append(Place(entry, [*texts]))

    def add_earlier(self, messages: Sequence[Message]) -> None:
        """Add earlier messages, which are not in the body."""
        for message in messages:
            self.put(dict(message))
        self.earlier = len(messages)

    def is_earlier(self, message: Message) -> bool:
        """Return True for a message, or a changed copy of one, that the body only refers to."""
        return PLACE in message and message[PLACE] < self.earlier


def joined(parts: list[dict[str, Any]]) -> Any:
    """Return the content of a message with these parts: a single text as text, no parts as None."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts or None


def _image(part: Mapping[str, Any]) -> dict[str, Any] | None:
    url, source = part.get("image_url"), part.get("source")
    if part.get("type") not in ("image_url", "input_image", "image"):
        return None
    if is_dict(source):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
    found = url if is_dict(url) else {"url": url}
    return {"url": str(found.get("url"))}
