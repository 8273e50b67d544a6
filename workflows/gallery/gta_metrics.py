"""GTA's metrics (arXiv 2407.08713), of a row of the reader `gta:`. Departures: its own are over all steps of all tasks,
these are of one task each; likeness to a right answer is F1 of words and not of embeddings, and arguments of calls that
draw count if they are equal."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from workbench.workflow import Trace
from workbench_kit.logs import tool_uses

DRAWS = {"DrawBox", "AddText", "Plot", "TextToImage", "ImageStylization"}
#: GTA's fourteen, of which a call of any counts; of others those that the task names.
TOOLS = DRAWS | {"OCR", "ImageDescription", "RegionAttributeDescription", "TextToBbox", "GoogleSearch", "Calculator"}
TOOLS |= {"Solver", "MathOCR", "CountGivenObject"}
Row = Mapping[str, Any]


def ans_acc(example: Row, prediction: Row, trace: Trace) -> float:
    """AnsAcc, end to end: of the answer, or, where an image is the answer, of the calls that draw it."""
    if example["gt_answer"]:
        return _agrees(str(prediction["answer"]), example["gt_answer"])
    drawn = {use.tool: dict(use.arguments) for use in tool_uses(trace) if use.tool in DRAWS and not use.failed}
    gold = {name: arguments for name, arguments in _calls(example) if name in DRAWS}
    return float(all(drawn.get(name) == arguments for name, arguments in gold.items()))


def tool_f1(example: Row, trace: Trace) -> float:
    """F1 of the tools that are called, end to end. The paper's are of four groups of tools."""
    known, gold = TOOLS | {tool["name"] for tool in example["tools"]}, [name for name, _ in _calls(example)]
    called = [use.tool for use in tool_uses(trace) if use.tool in known]
    hits = sum(name in called for name in gold)
    precision, recall = min(1.0, hits / len(called)) if called else 0.0, hits / max(1, len(gold))
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def inst_acc(example: Row, prediction: Row) -> float:
    """InstAcc, step by step: calls where a call is right, answers where an answer is."""
    said = [_read(action) for action in prediction["actions"]]
    same = [("name" in a) == ("name" in b) for a, b in zip(said, example["steps"], strict=True) if a]
    return sum(same) / max(1, len(said))


def tool_acc(example: Row, prediction: Row) -> float:
    """ToolAcc, step by step: the right tool."""
    return _share(example, prediction, lambda said, gold: said.get("name") == gold["name"])


def arg_acc(example: Row, prediction: Row) -> float:
    """ArgAcc, step by step: the right tool with equal arguments."""
    return _share(example, prediction, lambda said, gold: said == gold)


def summ_acc(example: Row, prediction: Row) -> float:
    """SummAcc, step by step: the answer at the last step, by what the tools gave. Of an image, that there is one."""
    said = _read(prediction["actions"][-1])
    return _agrees(said["answer"], example["gt_answer"]) if "answer" in said else 0.0


def _agrees(answer: str, gold: Any) -> float:
    if isinstance(gold, list):
        return max(_f1(answer, str(right)) for right in gold)
    white, black = gold.get("whitelist") or (), gold.get("blacklist") or ()
    return float(all(_names(answer, words) for words in white) and not any(_names(answer, words) for words in black))


def _names(answer: str, words: list[str]) -> bool:
    return any(re.search(rf"\b{re.escape(word)}\b", answer, re.IGNORECASE) for word in words)


def _f1(one: str, other: str) -> float:
    a, b = (re.findall(r"\w+", text.lower()) for text in (one, other))
    shared = (Counter(a) & Counter(b)).total()
    return 2 * shared / (len(a) + len(b)) if shared else 0.0


def _share(example: Row, prediction: Row, right: Any) -> float:
    pairs = zip(map(_read, prediction["actions"]), example["steps"], strict=True)
    judged = [right(said, gold) for said, gold in pairs if "name" in gold]
    return sum(judged) / len(judged) if judged else 1.0


def _read(action: str) -> dict[str, Any]:
    """What is said at a step: {name, arguments}, {answer}, or {} for a call that cannot be read."""
    if "{" not in action:
        return {"answer": action}
    try:
        call = json.loads(action[action.index("{") :])
        return {"name": call["name"], "arguments": call["arguments"]}
    except (ValueError, KeyError, TypeError):
        return {}


def _calls(example: Row) -> list[tuple[str, Any]]:
    return [(step["name"], step["arguments"]) for step in example["steps"] if "name" in step]
