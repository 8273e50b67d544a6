"""BFCL, multi-turn: an agent with the programs of a car, a file system or a broker, instructed turn by turn.

Source: the Berkeley Function Calling Leaderboard (Patil et al., ICML 2025), package `bfcl-eval`, whose simulators,
tasks and checker run here. Departure: in `miss_func`, the missing functions come as tools, announced by a line.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import bfcl_eval
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

DATA = Path(bfcl_eval.__file__).parent / "data"


@lru_cache
def lines_of(name: str) -> dict[str, Any]:
    """Return the entries of a file of the package, by id."""
    return {e.get("id"): e for e in map(json.loads, (DATA / name).read_text().splitlines())}


class World:
    """Task: `id`, e.g. multi_turn_base_0. A text, instead of a call, ends the turn; after the last one, the episode."""

    done = False

    def reset(self, task: dict[str, Any]) -> str:
        self.category = task["id"].rsplit("_", 1)[0]
        self.entry = lines_of(f"BFCL_v4_{self.category}.json")[task["id"]]
        self.wanted = lines_of(f"possible_answer/BFCL_v4_{self.category}.json")[task["id"]]["ground_truth"]
        self.made, self.turn = [[]], 0
        self._run([])
        return self._said()

    def step(self, action: str | dict[str, Any]) -> str:
        if isinstance(action, dict):
            named = ",".join(f"{name}={value!r}" for name, value in action["arguments"].items())
            self.made[-1].append([f"{action['tool']}({named})"])
            return self._run(self.made[-1][-1])[0]
        self.turn += 1
        self.done = self.turn == len(self.wanted)
        self.made += [] if self.done else [[]]
        return "" if self.done else self._said()

    def _said(self) -> str:
        words = [message["content"] for message in self.entry["question"][self.turn]]
        return "\n".join(words) or "There are more functions now. Go on with what I asked for."

    def _run(self, calls: list[str]) -> list[str]:
        seen = (self.entry["initial_config"], self.entry["involved_classes"], "live", self.entry["id"])
        return execute_multi_turn_func_call(calls, *seen, "long_context" in self.category)[0]

    def tools(self) -> list[dict[str, Any]]:
        kept_back = {
            name
            for turn, names in self.entry.get("missed_function", {}).items()
            if int(turn) > self.turn
            for name in names
        }
        found = []
        for one in self.entry["involved_classes"]:
            text = (DATA / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[one]).read_text()
            found += [
                {"name": f["name"], "description": f["description"], "parameters": _schema(f["parameters"])}
                for f in map(json.loads, text.splitlines())
                if f["name"] not in {*kept_back, *self.entry.get("excluded_function", ())}
            ]
        return found

    def score(self) -> float:
        made = self.made + [[]] * (len(self.wanted) - len(self.made))
        return float(multi_turn_checker(made, self.wanted, self.entry, self.category, "scored")["valid"])


def _schema(written: Any) -> Any:
    """Convert to a JSON Schema: BFCL uses Python's names for types."""
    words = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
    if isinstance(written, dict):
        return {k: words.get(v, v) if k == "type" and isinstance(v, str) else _schema(v) for k, v in written.items()}
    return [_schema(one) for one in written] if isinstance(written, list) else written


def list_tasks(category: str = "base") -> list[dict[str, Any]]:
    """List the tasks of a category in several turns: base, miss_func, miss_param or long_context."""
    return [{"id": key} for key in lines_of(f"BFCL_v4_multi_turn_{category}.json")]
