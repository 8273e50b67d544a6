"""Tasks of MiniWoB on one page, told in one instruction: in the order in which they are to be done, or the first of
them last, behind "after". A live world in the form of CompWoB (Furuta et al., arXiv 2311.18751); its pages are ours.

Each row's runs in a process of its own, so this imports nothing of the workbench.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WORDS = "amet arcu cras diam dolor duis eget elit enim erat fames felis justo lacus lorem magna massa mauris".split()
BUTTONS = ["Ok", "Cancel", "Next", "Previous", "Yes", "No"]
NAMES = ["ada", "ben", "cleo", "dan", "eva", "finn", "gina", "hugo"]
BOXES = ("radio", "checkbox")


@dataclass
class Element:
    """A link, a button or an input. wanted: whether it is the one to press or to check, or the text to enter."""

    part: int
    tag: str
    text: str
    wanted: bool | str
    value: bool | str = False

    def html(self, number: int) -> str:
        if self.tag in ("a", "button"):
            return f'<{self.tag} id="{number}">{self.text}</{self.tag}>'
        if self.tag in BOXES:
            checked = " checked" if self.value else ""
            return f'<label><input type="{self.tag}" id="{number}"{checked}>{self.text}</label>'
        return f'<label>{self.text}<input type="{self.tag}" id="{number}" value="{self.value or ""}"></label>'


class Page:
    """Task: `parts`, kinds of tasks in their order; `reverse`; `apart`, each part on a page of its own; `seed`.

    Actions: click ID, or type ID TEXT. A press of a button or a link that is not the right one of the next part, or
    that comes with wrong entries, ends it without a point. Departure: CompWoB looks at all parts at the last press.
    """

    done, at = False, 0

    def reset(self, task: dict[str, Any]) -> str:
        self.draw, self.apart = random.Random(task["seed"]), task["apart"]
        self.elements: list[Element] = []
        told: list[tuple[str, str]] = []  # what to do, and the same behind "after"
        for number, kind in enumerate(task["parts"]):
            told.append(getattr(self, "add_" + kind.replace("-", "_"))(number))
        self.parts, (first, after), rest = len(told), told[0], [do for do, _ in told[1:]]
        ordered = ", and then ".join([first, *rest])
        brief = f"{', and '.join(rest)}, after {after}" if task["reverse"] else ordered
        self.brief = f"{brief[0].upper()}{brief[1:]}."
        return self.show()

    def step(self, action: str) -> str:
        found = re.match(r"(click|type) (\d+) ?(.*)", action.strip())
        element = dict(self.seen()).get(int(found[2])) if found else None
        if found is None or element is None:
            return f"Write: click ID, or type ID TEXT, of an element on the page.\n{self.show()}"
        if found[1] == "type" and element.tag in ("text", "password"):
            element.value = found[3]
        elif found[1] == "click" and element.tag in BOXES:
            for other in self.elements if element.tag == "radio" else ():
                other.value = other.value if other.part != element.part else False
            element.value = not element.value
        elif found[1] == "click" and element.tag in ("a", "button"):
            self.press(element)
        return self.show()

    def press(self, element: Element) -> None:
        entries = [one for one in self.elements if one.part == self.at and one.tag not in ("a", "button")]
        right = element.part == self.at and element.wanted and all(one.value == one.wanted for one in entries)
        self.at += bool(right)
        self.done = not right or self.at == self.parts

    def score(self) -> float:
        return float(self.at == self.parts)

    def seen(self) -> Iterator[tuple[int, Element]]:
        return ((n, one) for n, one in enumerate(self.elements) if not self.apart or one.part == self.at)

    def show(self) -> str:
        return "\n".join(['<div id="area">', *(one.html(number) for number, one in self.seen()), "</div>"])

    def add(self, part: int, tag: str, words: Sequence[str], *wanted: str) -> str:
        """Add elements of one kind; returns those that are wanted."""
        self.elements += [Element(part, tag, word, word in wanted) for word in words]
        return ", ".join(wanted)

    def add_click_link(self, part: int) -> tuple[str, str]:
        words = self.draw.sample(WORDS, 4)
        link = self.add(part, "a", words, words[2])
        return f'click on the link "{link}"', f'clicking on the link "{link}"'

    def add_click_button(self, part: int) -> tuple[str, str]:
        names = self.draw.sample(BUTTONS, 3)
        name = self.add(part, "button", names, names[1])
        return f'click on the "{name}" button', f'clicking on the "{name}" button'

    def add_click_option(self, part: int, most: int = 1, kind: str = "radio") -> tuple[str, str]:
        words = self.draw.sample(WORDS, 5)
        wanted = self.add(part, kind, words, *self.draw.sample(words, most))
        self.add(part, "button", ["Submit"], "Submit")
        return f"select {wanted} and click Submit", f"selecting {wanted} and clicking Submit"

    def add_click_checkboxes(self, part: int) -> tuple[str, str]:
        return self.add_click_option(part, 2, "checkbox")

    def add_enter_text(self, part: int) -> tuple[str, str]:
        word = self.draw.choice(NAMES)
        self.elements.append(Element(part, "text", "Text", word))
        self.add(part, "button", ["Submit"], "Submit")
        return f'enter "{word}" and press Submit', f'entering "{word}" and pressing Submit'

    def add_login_user(self, part: int) -> tuple[str, str]:
        user, password = self.draw.choice(NAMES), "".join(self.draw.sample("abcdefghkmnprst", 4))
        self.elements += [
            Element(part, "text", "Username", user),
            Element(part, "password", "Password", password),
        ]
        self.add(part, "button", ["Login"], "Login")
        told = f'the username "{user}" and the password "{password}" and press Login'
        return f"enter {told}", f"entering {told.replace('press', 'pressing')}"
