"""Small live worlds for designs of the gallery. Each row's runs in a process of its own, so this imports nothing of the
workbench."""

from __future__ import annotations

import math
import random
import re
from typing import Any


class Board:
    """A board of sixty lamps, of which one breaks at a time. Task: `day`. Action: mend NUMBER."""

    done = False

    def reset(self, task: dict[str, Any]) -> str:
        self.draw, self.broken, self.mended, self.turns = random.Random(task["day"]), 0, 0, 0
        return self._show()

    def step(self, action: str) -> str:
        self.mended += self.broken > 0 and action.split() == ["mend", str(self.broken)]
        self.done = self.turns == 4
        self.turns += 1
        self.broken = self.draw.choice([number for number in range(21, 61) if number != self.broken])
        return self._show()

    def _show(self) -> str:
        return "\n".join(f"lamp {n}: {'broken' if n == self.broken else 'burns'}" for n in range(1, 61))

    def score(self) -> float:
        return self.mended / 4


class House:
    """Doors, of which one may be opened. Task: `rooms`; `place`, the room with the thing. Action: open ROOM."""

    done = False

    def reset(self, task: dict[str, Any]) -> str:
        self.rooms, self.place, self.opened = task["rooms"], task["place"], ""
        return f"Rooms: {', '.join(self.rooms)}."

    def step(self, action: str) -> str:
        room = action.removeprefix("open ").strip()
        if room not in self.rooms:
            return "There is no such room."
        self.done, self.opened = True, room
        return "It lies here." if room == self.place else "Nothing. All other doors fall shut."

    def score(self) -> float:
        return float(self.opened == self.place)


class Market:
    """A seller and a buyer haggle in turns. Task: `cost` and `worth`, of which each knows its own. Action: a price, or
    accept. score: the share of what a trade could gain, which shrinks by 5% a turn; 1 for no deal where none gains."""

    done, player, offer, deal, turns = False, "seller", None, None, 0

    def reset(self, task: dict[str, Any]) -> str:
        self.gain = task["worth"] - task["cost"]
        return "You begin."

    def step(self, action: str) -> str:
        self.turns += 1
        self.player = "buyer" if self.player == "seller" else "seller"
        if "accept" in action and self.offer is not None:
            self.done, self.deal = True, self.offer
        elif prices := re.findall(r"\d+", action):
            self.offer = int(prices[-1])
        return action

    def score(self) -> float:
        if self.deal is None:
            return float(self.gain <= 0)
        return round(0.95 ** (self.turns - 2), 2) if self.gain > 0 else 0.0


class Secret:
    """One asks freely, one answers, who alone knows the word. Task: `secret`. Action of the guesser: a question, or
    guess: WORD, which ends it."""

    done, player, found = False, "guesser", False

    def reset(self, task: dict[str, Any]) -> str:
        self.secret = task["secret"]
        return "Ask."

    def step(self, action: str) -> str:
        if self.player == "guesser" and action.lower().startswith("guess:"):
            self.done, self.found = True, action[6:].strip(" .").lower() == self.secret
            return "It ends."
        self.player = "judge" if self.player == "guesser" else "guesser"
        return action

    def score(self) -> float:
        return float(self.found)


class Hall:
    """Two porters fetch parcels in three rounds. Each round both go, and neither sees where the other goes. When
    something was fetched, two more rooms show. Task: `rooms`. Action: go ROOM.

    meetings: start, or progress: at the start and whenever rooms show, each says a word first.
    """

    def __init__(self, meetings: str = "progress"):
        self.meetings = meetings

    def reset(self, task: dict[str, Any]) -> str:
        self.hidden = list(task["rooms"])
        self.open, self.went, self.fetched, self.rounds = [], [], 0, 0
        self.all, self.player, self.meeting, self.done = len(self.hidden), "ann", True, False
        return self._show()

    def _show(self) -> str:
        self.open += [self.hidden.pop(0) for _ in self.hidden[:2]]
        return self._now()

    def _now(self) -> str:
        return f"Parcels in: {', '.join(self.open)}. {'Discuss.' if self.meeting else 'Go.'}"

    def step(self, action: str) -> str:
        speaker, self.player = self.player, "bob" if self.player == "ann" else "ann"
        if self.meeting:
            self.meeting = speaker == "ann"
            return f"{speaker} said: {action}\n{self._now()}"
        self.went.append(action.removeprefix("go ").strip())
        if speaker == "ann":
            return self._now()
        got = [room for room in self.open if room in self.went]
        self.open, self.went = [room for room in self.open if room not in got], []
        self.fetched, self.rounds = self.fetched + len(got), self.rounds + 1
        self.done = self.rounds == 3
        self.meeting = bool(got) and self.meetings == "progress"
        return self._show() if got else self._now()

    def score(self) -> float:
        return round(self.fetched / self.all, 2)


class Spring:
    """A spring that grows by `slope` for each weight, measured with noise. Task: `slope`. Action: weigh NUMBER, twice.
    score: the information expected of the experiments, as a share of that of the best."""

    PRIOR, NOISE, MAX = (5.0, 2.0), 4.0, 10

    done = False

    def reset(self, task: dict[str, Any]) -> str:
        self.slope, self.seen, self.gains = task["slope"], [], []
        return (
            f"You may hang up to {self.MAX} weights on it, twice. Each measurement is off by about {self.NOISE:g} cm."
        )

    def step(self, action: str) -> str:
        found = re.search(r"weigh (\d+)", action)
        if found is None or not 1 <= int(found[1]) <= self.MAX:
            return "Write: weigh NUMBER."
        weights = int(found[1])
        self.gains.append(self.information(weights) / self.information(self.MAX))
        self.seen.append(f"{weights} weights: {self.slope * weights + random.gauss(0, self.NOISE):.1f} cm")
        self.done = len(self.seen) == 2
        return "; ".join(self.seen)

    def information(self, weights: int, samples: int = 300) -> float:
        """Expected information gain of an experiment in nats, by nested Monte Carlo (BoxingGym, section 3)."""
        draw = random.Random(weights)
        slopes = [draw.gauss(*self.PRIOR) for _ in range(samples)]

        def log_density(length: float, slope: float) -> float:
            return -((length - slope * weights) ** 2) / (2 * self.NOISE**2)

        total = 0.0
        for slope in slopes:
            length = slope * weights + draw.gauss(0, self.NOISE)
            mean = sum(math.exp(log_density(length, other)) for other in slopes) / samples
            total += log_density(length, slope) - math.log(mean)
        return total / samples

    def score(self) -> float:
        return min(1.0, round(sum(self.gains) / 2, 2))


class Shop:
    """A site of rooms with shelves; the thing stands on one of them, two clicks away. Each page begins with the menu of
    the site, and has an advertisement that leads away. Task: `room`, `shelf`. Action: open NAME."""

    ROOMS = ("garden", "kitchen", "cellar")
    done, at, found = False, "hall", False

    def reset(self, task: dict[str, Any]) -> str:
        self.room, self.shelf = task["room"], task["shelf"]
        return self._show()

    def step(self, action: str) -> str:
        name = action.removeprefix("open ").strip()
        if f"open {name}" not in self.actions():
            return f"There is no {name} here.\n{self._show()}"
        self.found = name == self.shelf and self.at == self.room
        self.done = self.found or name == "advertisement"
        self.at = name if name in self.ROOMS else "hall" if name == "back" else self.at
        return "Here it is." if self.found else self._show()

    def actions(self) -> list[str]:
        here = [*self.ROOMS] if self.at == "hall" else ["left shelf", "right shelf", "back"]
        return [f"open {name}" for name in ("advertisement", *here)]

    def _show(self) -> str:
        menu = [f"menu {n}: offers of the week, news, terms, imprint" for n in range(40)]
        page = f"The {self.at}. " + (f"A sign: it stands on the {self.shelf}." if self.at == self.room else "No sign.")
        return "\n".join([*menu, page])

    def score(self) -> float:
        return float(self.found)


class Office:
    """A screen of lines and tables: a report is opened, which asks for leave, and a total in it is clicked. Task:
    `files` in order, `totals` by person, `person`. Action: click line NUMBER, or click cell ROW COLUMN."""

    done, right = False, False

    def reset(self, task: dict[str, Any]) -> str:
        self.files, self.totals, self.person, self.screen = task["files"], task["totals"], task["person"], "files"
        return self._show()

    def step(self, action: str) -> str:
        clicked = action.removeprefix("click ").strip()
        wanted = {
            "files": (f"line {self.files.index('report') + 1}", "leave"),
            "leave": ("line 2", "table"),
            "table": (f"cell {[*self.totals].index(self.person) + 1} 2", "end"),
        }
        right, then = wanted[self.screen]
        if self.screen == "table":
            self.done, self.right = True, clicked == right
        self.screen = then if clicked == right else self.screen
        return self._show()

    def _show(self) -> str:
        if self.screen == "files":
            return "lines: " + " / ".join(self.files)
        if self.screen == "leave":
            return "lines: leave it closed / open it all the same"
        return "table: " + " / ".join(f"{name} {total}" for name, total in self.totals.items())

    def score(self) -> float:
        return float(self.right)


class Descent:
    """A way down from a mountain, in two stretches. Of two paths one ends at a cliff, and nobody climbs back. Task:
    `paths`, of each stretch: path: what lies on it. Action: take PATH."""

    done, lost, at = False, False, 0

    def reset(self, task: dict[str, Any]) -> str:
        self.paths = task["paths"]
        return self._show()

    def step(self, action: str) -> str:
        path = action.removeprefix("take ").strip()
        if path not in self.paths[self.at]:
            return f"There is no {path}. {self._show()}"
        self.lost = "bridge" not in self.paths[self.at][path]
        self.at += 1
        self.done = self.lost or self.at == len(self.paths)
        return "A cliff." if self.lost else "The valley." if self.done else self._show()

    def _show(self) -> str:
        return "Paths: " + "; ".join(f"{path}, past {seen}" for path, seen in self.paths[self.at].items()) + "."

    def actions(self) -> list[str]:
        return [] if self.done else [f"take {path}" for path in self.paths[self.at]]

    def score(self) -> float:
        return float(self.done and not self.lost)
