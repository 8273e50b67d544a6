"""Prompts of the proposer: built from train alone, at most `shown` characters.

Functions get at most a half of these, failed lists a quarter, and examples the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from workbench import Evaluation
from workbench.base.text import short
from workbench.task import Example
from workbench_forge.actions import HARMLESS, Function
from workbench_kit.answers import is_same
from workbench_kit.prompting import show_results

#: Number of rows that show a program's mistakes.
MISTAKES = 3

_SYSTEM = """\
You improve the tools of an agent: Python functions that it may call while it solves tasks. After seeing how it did,
you make one edit at a time. Answer with one JSON object and nothing else:
{{"action": "add" | "revise", "name": ..., "description": ..., "parameters": JSON Schema of type object,
 "source": Python text that defines the function, "example": {{"arguments": {{...}}, "result": ...}}}}
{{"action": "remove", "name": ...}}
{{"action": "terminate"}} if no edit would help.
Rules: at most {most} functions. A function is general: it solves a kind of step, never one task. It may import
{imports}; no files, network, processes or threads; arguments and result are JSON. The example is run, and must give
its result; it is kept as the function's test."""


def functions_system(most: int) -> str:
    return _SYSTEM.format(most=most, imports=", ".join(HARMLESS))


@dataclass(frozen=True)
class Failure:
    """A list of functions that did not replace the best one. score, best_score: of the two on the same batch."""

    functions: Sequence[Function]
    score: float
    best_score: float


def functions_task(
    functions: Sequence[Function],
    best: Sequence[Function],
    before: Evaluation,
    failures: Sequence[Failure],
    slot: int,
    slots: int,
    shown: int,
) -> str:
    """Return a prompt for one edit of `functions`, derived from the best ones. before: results of the best ones."""
    now = "\n".join(_fitted([_written(f) for f in functions], shown // 2)) or "none"
    tried = "\n".join(_fitted([_failed(f, best) for f in failures], shown // 4))
    parts = [f"The functions now:\n{now}", f"Edit {slot + 1} of at most {slots} in this round."]
    if tried:
        parts.append(f"Lists that were tried and not kept, and how they differ from the best one:\n{tried}")
    results = show_results(before.results, shown - len(now) - len(tried))
    parts.append(f"How the agent did with the best functions (score {before.score:.2f}):\n{results}")
    return "\n\n".join(parts)


def refused(said: Sequence[tuple[str, str]], tries: int, shown: int) -> list[dict[str, str]]:
    """Return the newest unusable answers with their reasons: as many as fit into `shown` characters, at least one.

    The last one has a count, to tell this request from the one before if answer and reason are the same.
    """
    messages: list[dict[str, str]] = []
    for number, (text, why) in reversed(list(enumerate(said, 1))):
        told = f"That cannot be used: {_cut(why, shown // 3)}. Try again: {number} of {tries} tries are used up."
        if messages and len(text) + len(told) > shown:
            break
        answer = _cut(text, shown - len(told))
        shown -= len(answer) + len(told)
        messages = [{"role": "assistant", "content": answer}, {"role": "user", "content": told}, *messages]
    return messages


def _written(function: Function) -> str:
    return f"### {function['name']}: {function.get('description', '')}\n{function['source']}"


def _failed(failure: Failure, best: Sequence[Function]) -> str:
    """Return the scores, and the source of each function that differs from the best list."""
    known = {f["name"]: f for f in best}
    names = {f["name"] for f in failure.functions}
    lines = [f"- {failure.score:.2f}, where the best list had {failure.best_score:.2f}:"]
    for f in failure.functions:
        if f != known.get(f["name"]):
            done = "revised" if f["name"] in known else "added"
            lines.append(f"{done} {f['name']}: {f.get('description', '')}\n{f['source']}")
    lines += [f"removed {name}" for name in known if name not in names]
    return "\n".join(lines)


def _fitted(texts: Sequence[str], most: int) -> list[str]:
    """Return the texts, the longest cut, with at most `most` characters in total."""
    kept = list(texts)
    for done, i in enumerate(sorted(range(len(texts)), key=lambda i: len(texts[i]))):
        kept[i] = _cut(texts[i], most // (len(texts) - done) - 1)
        most -= len(kept[i]) + 1  # and its line break
    return kept


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


def program(
    node: Any,
    train: Sequence[Example],
    targets: Mapping[str, str],
    shown: int,
) -> list[dict[str, str]]:
    """Return a prompt for one program of a `code` node. Rows are shown as calls with their expected results, or without
    a label, with all fields that train has."""
    present = _cut(node.config.source, shown // 2)
    ends = find_shared_ends(node.inputs, train)
    rows, size = list[str](), len(present) + sum(map(len, ends))
    for example in train:
        known = {n: example[n] for n in node.inputs if n in example}
        wanted = {n: example[targets.get(n, n)] for n in node.outputs if targets.get(n, n) in example}
        whole = known and wanted
        line = f"{_call(node, known)} == {_value(node, wanted)}" if whole else short(dict(example.fields), 400)
        if size + len(line) > shown:
            break
        rows.append(line)
        size += len(line)
    task = (
        f"Write the Python function `{node.function}({', '.join(node.inputs)})`. It returns "
        + (f"the value of `{node.outputs[0]}`" if len(node.outputs) == 1 else f"a dict with {', '.join(node.outputs)}")
        + f" (signature: {node.config.code}). It may import {', '.join(HARMLESS)}; "
        f"no files, network, processes or threads.\n\nThe present program:\n```python\n{present}\n```\n"
        "Examples:\n"
        + "\n".join([*rows, *ends])
        + "\n\nIt must hold for others than these, too: find the rule, do not list the "
        "examples. Answer with the whole program in one Python block, and nothing else."
    )
    return [{"role": "user", "content": task}]


def find_shared_ends(names: Sequence[str], rows: Sequence[Example]) -> list[str]:
    """Describe how all texts of an input begin and end, if they share it: small models take such words for data."""
    found = list[str]()
    for name in names:
        texts = [row[name] for row in rows if isinstance(row.get(name), str)]
        if len(texts) < 2 or len(texts) < len(rows):
            continue
        start = _shared_start(texts)
        start = start if all(text == start for text in texts) else start[: _last_break(start)]
        end = _shared_start([text[len(start) :][::-1] for text in texts])[::-1]
        end = end[len(end) - _last_break(end[::-1]) :]
        ends = [("begins", start), ("ends", end)]
        found += [f"Each `{name}` {where} with {short(text, 200)}." for where, text in ends if text.strip()]
    return found


def _shared_start(texts: Sequence[str]) -> str:
    alike = takewhile(lambda characters: len({*characters}) == 1, zip(*texts, strict=False))
    return "".join(first for first, *_ in alike)


def _last_break(text: str) -> int:
    """Return the length of a text up to and including its last space: a shared part ends with a whole word."""
    return text.rfind(" ") + 1


def repair(task: list[dict[str, str]], source: str, mistakes: Sequence[str], shown: int) -> list[dict[str, str]]:
    """Return a prompt to repair an answer to `program`. mistakes: see `find_mistakes`.

    It asks for the reason inside the program: small models that are asked for a sentence first write nothing else.
    """
    wrong = "\n".join(_fitted(mistakes, shown // 2))
    told = (
        f"That is wrong:\n{wrong}\nWrite the whole program again, in one Python block, so that this is right as well. "
        "Its first line is a comment that says what was overlooked."
    )
    answer = f"```python\n{_cut(source, shown // 2)}\n```"
    return [*task, {"role": "assistant", "content": answer}, {"role": "user", "content": told}]


class Mistake(NamedTuple):
    """A fault of a program, in words. given: its input, if it returned a wrong value."""

    text: str
    given: dict[str, Any] | None = None


def find_mistakes(address: str, node: Any, found: Evaluation, targets: Mapping[str, str]) -> list[Mistake]:
    """Describe up to MISTAKES results where a program fails or returns something other than the label, with their
    inputs.

    A row on which another node fails is no evidence.
    """
    said, place = list[Mistake](), address.removeprefix("nodes.").rpartition(".")[0]
    for result in found.results:
        if len(said) == MISTAKES:
            break
        span = next((one for one in (result.trace.spans if result.trace else ()) if one.node == place), None)
        if span is None:
            continue
        row = result.example
        labels = {name: row[at] for name in node.outputs if (at := targets.get(name, name)) in row}
        wrong = {name: label for name, label in labels.items() if not is_same(span.outputs.get(name), label)}
        if span.error:
            said.append(Mistake(f"{_call(node, span.inputs)} fails: {span.error}"))
        elif wrong:
            gave, right = ({name: one.get(name) for name in wrong} for one in (span.outputs, labels))
            told = f"{_call(node, span.inputs)} gives {_value(node, gave)}, and must give {_value(node, right)}"
            given = {name: span.inputs[name] for name in node.inputs if name in span.inputs}
            said.append(Mistake(told, given))
    return said


def _call(node: Any, given: Mapping[str, Any]) -> str:
    return f"{node.function}({', '.join(short(given[name], 300) for name in node.inputs if name in given)})"


def _value(node: Any, outputs: Mapping[str, Any]) -> str:
    """Format what a program returns: the value of a single output, or a dict."""
    return short(outputs[node.outputs[0]] if len(node.outputs) == 1 else dict(outputs), 200)
