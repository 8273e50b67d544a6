"""A saved DSPy program: `program.save("program.json")`, which is data, or a pickle, read only with --run-code.

A state has the instructions, demos and fields of each predictor, but not which fields are inputs, and no types. A
pickled program has both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench.spec import defaults
from workbench.workflow import parse_signature
from workbench_import.dspy_state import default_adapter, read_states
from workbench_import.imported import MIN_ROWS, Imported, Wishes, as_list, read_value

#: A hosted model: not a path, and no prefix of a provider that starts or loads something here.
_MODEL = re.compile(r"[a-z0-9_]+/[\w.:@/-]+")
_DEFAULT = re.compile(r"Given the fields? (.+?), produce the fields? (.+?)\.")


def read(path: Path, wishes: Wishes) -> Imported:
    """Return the program as a workflow. Raises SpecError."""
    found = Imported({})
    given = _given_signatures(wishes)
    state = _state_of(path)
    states, known = _states(path, state, wishes)
    nodes, unused, adapter = {}, dict(given), default_adapter(_json_of(state))
    for name, one in states.items():
        node = node_name(name, nodes)
        text = unused.pop(name, None) or unused.pop(node, None) or known.get(name)
        nodes[node] = {**_node(node, one, text, found), "adapter": adapter}
        found.taken.append(f"predictor {name} as node {node}: {len(nodes[node].get('demos', []))} demo(s)")
    if unused:
        raise SpecError(f"--signature names '{min(unused)}'", hint=f"Predictors: {', '.join(states)}.")
    if not nodes:
        raise SpecError(f"{path} contains no predictors", hint="Save the program with program.save('program.json').")
    if len(nodes) > 1:
        found.left.append(
            "forward(): it is Python. Fields of one name flow between the nodes; or keep the module as it is, as a "
            "node: {dspy: python:file.py:Class}"
        )
    last = list(nodes.values())[-1]
    output = parse_signature(last["predict"]).outputs[-1].name
    lm = _language_model(states, found)
    found.tree = {"name": "imported", **({"lm": lm} if lm else {}), "nodes": nodes, "budget": {"calls": 1000}}
    found.tree["metric"] = wishes.metric or f"exact_match({output})"
    if not wishes.metric:
        found.guessed.append(f"the metric: exact_match({output}); a program has none (--metric)")
    _add_rows(found, last, wishes)
    return found


def node_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return a node's name for a predictor: `answer.predict` becomes `answer`."""
    base = re.sub(r"\W+", "_", name.removesuffix(".predict")).strip("_")
    base = {"self": "answer", "predict": "answer", "": "answer"}.get(base, base)
    while base in taken:
        base += "_"
    return base


def _given_signatures(wishes: Wishes) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in wishes.signatures:
        name, mark, signature = text.partition("=")
        if not mark:
            raise SpecError(f"--signature {text}: no '='", hint="Write --signature 'answer=question -> answer'.")
        parse_signature(signature.strip())
        given[name.strip()] = signature.strip()
    return given


def _state_of(path: Path) -> Path:
    return path / "program.json" if path.is_dir() and (path / "program.json").is_file() else path


def _json_of(state: Path) -> dict[str, Any] | None:
    """Return the content of a state that is data; None for a pickle and for any other file."""
    value = read_value(state) if state.is_file() and state.suffix != ".pkl" else None
    return value if is_dict(value) else None


def _states(path: Path, state: Path, wishes: Wishes) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return (state of each predictor, signatures as far as the file has them)."""
    if state.is_dir() or state.suffix == ".pkl":
        if not wishes.run_code:
            hint = "If you trust its author, add --run-code. Otherwise ask for program.save('program.json')."
            raise SpecError(f"{path} is a pickle: to read it is to run what its author put in it", hint=hint)
        from workbench_import.pickled import read_pickled

        return read_pickled(state)
    value = _json_of(state)
    if value is None:
        raise SpecError(f"{state.name} is not a state of a DSPy program", hint="It is made by program.save.")
    return read_states(value), {}


def _node(name: str, state: Mapping[str, Any], text: str | None, found: Imported) -> dict[str, Any]:
    signature = state["signature"]
    instructions = str(signature.get("instructions") or "")
    fields = [field for field in as_list(signature.get("fields")) if is_dict(field)]
    names = [_field_name(field) for field in fields]
    if text is None:
        text = _guess_signature(name, names, instructions, found)
    parsed = parse_signature(text)
    known = [f.name for f in (*parsed.inputs, *parsed.outputs)]
    node: dict[str, Any] = {"predict": text}
    if instructions:
        node["instructions"] = instructions
    told = zip(names, (field.get("description") for field in fields), strict=True)
    described = {n: str(text) for n, text in told if n in known and text not in (None, "", f"${{{n}}}")}
    if described:
        node["descriptions"] = described
    demos = [_demo(demo, known) for demo in as_list(state.get("demos")) if is_dict(demo)]
    whole = [demo for demo in demos if all(n in demo for n in known)]
    if len(whole) < len(demos):
        found.left.append(f"{len(demos) - len(whole)} demo(s) of {name} that lack a field")
    if whole:
        node["demos"] = whole
    lm = state.get("lm")
    decoding = {k: lm[k] for k in ("temperature", "max_tokens") if is_dict(lm) and lm.get(k) is not None}
    if decoding:
        node["decoding"] = decoding
    for key in ("traces", "train", "fields"):
        if state.get(key):
            found.left.append(f"{key} of {name}")
    return node


def _field_name(field: Mapping[str, Any]) -> str:
    """Return a field's name, which a state has only in its description or, as words, in its prefix."""
    exact = re.fullmatch(r"\$\{(\w+)\}", str(field.get("description") or ""))
    if exact:
        return exact[1]
    words = re.sub(r"\W+", "_", str(field.get("prefix") or "").lower()).strip("_")
    return words if words.isidentifier() else "field"


def _guess_signature(node: str, names: list[str], instructions: str, found: Imported) -> str:
    """Guess inputs and outputs from default instructions, or the field `reasoning`; else the last one is the output."""
    sides = _DEFAULT.search(instructions)
    if sides and (ins := re.findall(r"`(\w+)`", sides[1])) and (outs := re.findall(r"`(\w+)`", sides[2])):
        begin = [n for n in names if n not in ins and n not in outs and n == "reasoning"]
        return f"{', '.join(ins)} -> {', '.join([*begin, *outs])}"
    at = names.index("reasoning") if "reasoning" in names else len(names) - 1
    if at < 1:
        hint = f"Say it: --signature '{node}=question -> answer'."
        raise SpecError(f"which fields of {node} are inputs is not in the state: {', '.join(names)}", hint=hint)
    text = f"{', '.join(names[:at])} -> {', '.join(names[at:])}"
    found.guessed.append(f"{node}: {text}, all as text; a state does not tell inputs or types (--signature)")
    return text


def _demo(demo: Mapping[str, Any], known: list[str]) -> dict[str, Any]:
    return {name: demo[name] for name in known if name in demo and demo[name] is not None}


def _language_model(states: Mapping[str, Mapping[str, Any]], found: Imported) -> str | None:
    models = [s["lm"] for s in states.values() if is_dict(s.get("lm")) and isinstance(s["lm"].get("model"), str)]
    every = dict.fromkeys(str(lm["model"]) for lm in models)
    names = [name for name in every if _MODEL.fullmatch(name)]
    found.left += [f"language model {name}" for name in every if name not in names]
    if not names:
        found.guessed.append(f"the language model: {defaults.LM}; name yours under `lm`")
        return None
    found.taken.append(f"language model {names[0]}")
    if len(names) > 1:
        found.left.append(f"other language models: {', '.join(names[1:])}")
    for lm in models:
        found.left += [f"{key} of {lm['model']}" for key in ("api_base", "base_url", "model_list") if lm.get(key)]
    return names[0]


def _add_rows(found: Imported, node: Mapping[str, Any], wishes: Wishes) -> None:
    """Add the user's file, or else the demos of the last node."""
    if wishes.data is not None:
        found.data = wishes.data
        return
    demos = node.get("demos", [])
    if not is_list(demos) or len(demos) < MIN_ROWS or len(found.tree["nodes"]) > 1:
        hint = "Name a file of them: --data rows.jsonl (or .csv, .json), with the program's inputs and its labels."
        raise SpecError("a saved program has no rows for evaluation", hint=hint)
    found.rows = [dict(demo) for demo in demos]
    found.guessed.append(
        "the rows: the program's demos, as --data is missing; the prompt shows them, so their score is unreliable"
    )
