"""What the proposer is told. Examples of train alone, and as much of them as `shown` characters hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench import Evaluation, Workflow
from workbench.data import Example
from workbench.propose import short, show_results

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


def functions_system(most: int, imports: Sequence[str]) -> str:
    return _SYSTEM.format(most=most, imports=", ".join(imports) or "nothing")


def functions_task(
    functions: Sequence[dict[str, Any]], before: Evaluation, failures: Sequence[tuple[Sequence[dict[str, Any]], float]],
    slot: int, slots: int, shown: int,
) -> str:  # fmt: skip
    parts = [f"The functions now:\n{_list(functions)}", f"Edit {slot + 1} of at most {slots} in this round."]
    if failures:
        tried = "\n".join(f"- {', '.join(f['name'] for f in fs) or 'none'}: {score:.2f}" for fs, score in failures)
        parts.append(f"Lists that did worse than the score {before.score:.2f} of the best one:\n{tried}")
    parts.append(
        f"How the agent did with the best functions (score {before.score:.2f}):\n{show_results(before.results, shown)}"
    )
    return "\n\n".join(parts)


def _list(functions: Sequence[dict[str, Any]]) -> str:
    return "\n".join(f"### {f['name']}: {f.get('description', '')}\n{f['source']}" for f in functions) or "none"


def program(
    node: Any,
    workflow: Workflow,
    train: Sequence[Example],
    targets: Mapping[str, str],
    shown: int,
    imports: Sequence[str],
) -> list[dict[str, str]]:
    """Asks for one program of a `code` node. Rows show the fields that train has: inputs, and outputs where labelled."""
    rows, size = [], 0
    for example in train:
        known = {n: example[n] for n in node.inputs if n in example}
        wanted = {n: example[targets.get(n, n)] for n in node.outputs if targets.get(n, n) in example}
        rest = {} if known and wanted else dict(example.fields)
        line = short({**known, **wanted, **rest}, 400)
        if size + len(line) > shown:
            break
        rows.append(line)
        size += len(line)
    task = (
        f"Write the Python function `{node.function}({', '.join(node.inputs)})`. It returns "
        + (f"the value of `{node.outputs[0]}`" if len(node.outputs) == 1 else f"a dict with {', '.join(node.outputs)}")
        + f" (signature: {node.config.code}). It may import {', '.join(imports) or 'nothing'}; "
        "no files, network, processes or threads.\n"
        f"{workflow.tree.get('description', '')}\nThe present program:\n```python\n{node.config.source}\n```\n"
        "Examples:\n" + "\n".join(rows) + "\nFind the rule, do not list the examples. Answer with one Python block."
    )
    return [{"role": "user", "content": task}]
