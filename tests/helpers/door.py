"""A small environment for agents, as the text of a Python file."""

from __future__ import annotations

_DOOR = '''
from workbench_kit.acting import Environment, Step

class Door(Environment):
    """A corridor of four places: the key at the left end, the door at the right one."""

    def reset(self, task):
        self.state = {"at": 1, "key": False, "open": False, "moves": 0}
        return self.seen()

    def seen(self):
        return SEEN

    def step(self, action):
        s = self.state
        s["moves"] += 1
        s["at"] = min(max(s["at"] + (1 if ord(action[0]) % 2 else -1), 0), 3)
        s["key"] = s["key"] or s["at"] == 0
        s["open"] = s["key"] and s["at"] == 3
        return Step(self.seen(), s["open"] or s["moves"] == 6)

    def score(self):
        return 1.0 if self.state["open"] else 0.5 * self.state["key"]
'''
_NAMED = """
    def identity(self):
        return [self.state["at"], self.state["key"]]
"""
_METRIC = """
def reached(example, prediction):
    return float(prediction["score"])
"""


def write_door(seen: str, *, named: bool) -> str:
    """The file, with its metric `reached`.

    Args:
        seen: an expression for what the agent sees, of `self.state`.
        named: whether the environment itself names its states.
    """
    return _DOOR.replace("SEEN", seen) + (_NAMED if named else "") + _METRIC
