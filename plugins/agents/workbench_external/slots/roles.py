"""The role of a slot, for writers of a better text: its kind, its owner, and the parts of its message."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.workflow import TextRole
from workbench_external.config import Slot

#: By place: the kind of a slot, and whether it instructs a model in its own words.
_ROLES = {
    "system": ("the system message of an agent", True),
    "user": ("the message in which an agent shows its model an input", True),
    "turn": ("a message of an example that an agent shows its model, whose answer stays as it is", False),
    "tool": ("the description of the tool {name} of an agent", False),
    "parameter": ("the description of the parameter {parameter} of the tool {name} of an agent", False),
    "field": ("the description of the field {parameter} in {name}, the form of an agent's answer", False),
    "file": ("the file {name}, which an agent reads", True),
}


def role_of(slot: Slot, slots: Mapping[str, Slot]) -> TextRole:
    """Return the role of a slot. slots: of its agent, with the parts of a message in order."""
    what, instructs = _ROLES[slot.in_]
    if slot.in_ == "field" and not slot.parameter:
        what = "the description of {name}, the form of an agent's answer"
    what = what.format(name=slot.name or "without a name", parameter=slot.parameter)
    group = dict[str, Slot]()
    if slot.part and slot.of:
        group = {name: one for name, one in slots.items() if one.part and (one.of, one.in_) == (slot.of, slot.in_)}
    if any("{{" in one.match for one in (slot, *group.values())):
        what = f"{what} ({{{{1}}}} and the like stand for what varies, and must stay)"
    if not slot.part:
        return TextRole(what, instructs)
    parts = {f"slots.{name}.text": one.match if one.text is None else one.text for name, one in group.items()}
    return TextRole(f"a part of {what}", False, parts if len(parts) > 1 else {})
