"""Cards of agents that speak A2A: their name, their skills, and the address for requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from workbench.base.text import visible
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import NodeError
from workbench.spec import describe_host

#: Path of a card below an address that does not name the card itself (specification, 8.2).
WELL_KNOWN = "/.well-known/agent-card.json"
#: Maximum characters of a description and of a skill, and maximum skills: a stranger's text goes into prompts.
_LONGEST, _LONGEST_SKILL, _MAX_SKILLS = 1000, 300, 20
_JSONRPC = "JSONRPC"


@dataclass(frozen=True)
class Card:
    """An agent. skills: one line each. url: its JSON-RPC endpoint. version: of the protocol there."""

    name: str
    description: str
    skills: Sequence[str]
    url: str
    version: str

    def describe(self) -> str:
        """Describe it in a line for a model that may ask it."""
        told = f"{self.name}: {self.description}"
        return f"{told} Skills: {'; '.join(self.skills)}" if self.skills else told

    def document(self) -> dict[str, str]:
        """Return the card as a document for `search`, which finds it by its skills."""
        return {"id": self.name, "title": self.name, "text": "\n".join([self.description, *self.skills])}


def card_address(address: str) -> str:
    """Return the address of an agent's card: the address itself, if it names a JSON file."""
    return address if urlsplit(address).path.endswith(".json") else address.rstrip("/") + WELL_KNOWN


def read_card(found: Any, address: str) -> Card:
    """Read the card from an address. Raises NodeError if it cannot be used.

    A card may name only its own server: the user has agreed to that address, and to none that strangers name.
    """
    if not is_dict(found) or not isinstance(name := found.get("name"), str) or not (name := _line(name, 100)):
        raise NodeError("unparsed", f"what stands at {address} is no card of an agent: it has no name")
    wanted = [one for one in _interfaces(found) if one[1].upper() == _JSONRPC and one[2].split(".")[:2] in _KNOWN]
    if not wanted:
        raise NodeError("start", f"the agent '{name}' does not speak A2A 0.3 or 1.0 over JSON-RPC, by its card")
    url, _, version = wanted[0]
    skills = [_skill(one) for one in list_of(found.get("skills")) if is_dict(one)][:_MAX_SKILLS]
    description = _line(found.get("description"), _LONGEST)
    return Card(name, description, [one for one in skills if one], _at_home(url, address, name), version)


_KNOWN = (["1", "0"], ["0", "3"])


def _interfaces(card: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (url, binding, version) in the order of the agent's preference, in the formats of releases 1.0 and 0.3."""
    for one in list_of(card.get("supportedInterfaces")):
        if is_dict(one):
            yield _text(one, "url"), _text(one, "protocolBinding"), _text(one, "protocolVersion") or "1.0"
    version = _text(card, "protocolVersion") or "0.3.0"
    if url := _text(card, "url"):
        yield url, _text(card, "preferredTransport") or _JSONRPC, version
    for one in list_of(card.get("additionalInterfaces")):
        if is_dict(one):
            yield _text(one, "url"), _text(one, "transport"), version


def _at_home(url: str, address: str, name: str) -> str:
    """Return the address of an interface. Raises NodeError unless it is on the card's own server."""
    try:
        there, here = urlsplit(url), urlsplit(address)
        same = (there.scheme, _port(there), _host(there)) == (here.scheme, _port(here), _host(here))
    except ValueError:
        same = False
    if not same:
        where = f"leads to another server, {visible(url[:200])}: name that one as `a2a` if you trust it"
        raise NodeError("start", f"the card of '{name}' at {address} {where}")
    return there._replace(netloc=here.netloc).geturl()


def _port(place: SplitResult) -> int:
    return place.port or (443 if place.scheme == "https" else 80)


def _host(place: SplitResult) -> str:
    near = "a service of this machine"  # by any of its names
    return near if describe_host(place.geturl()) == near else place.hostname or ""


def _skill(skill: Mapping[str, Any]) -> str:
    """Describe a skill in a line: its name, description, tags and examples."""
    told = f"{_text(skill, 'name') or _text(skill, 'id')}: {_text(skill, 'description')}"
    more = [str(one) for key in ("tags", "examples") for one in list_of(skill.get(key)) if isinstance(one, str)]
    return _line(f"{told} ({', '.join(more)})" if more else told, _LONGEST_SKILL)


def _line(value: Any, most: int) -> str:
    text = visible(" ".join(str(value or "").split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(of: Mapping[str, Any], key: str) -> str:
    return value if isinstance(value := of.get(key), str) else ""


def list_of(value: Any) -> Sequence[Any]:
    """Return a list from untrusted input; an empty one for any other value."""
    return value if is_list(value) else ()
