"""Exports stored rows of workbench runs as trajectories in ATIF (`workbench_kit.logs`), version 1.7.

A row is a trajectory. Messages that a prompt adds to the one before it are steps of the system and the user. A model's
answer is a step of the agent, with its tokens and dollars. Results of tools are observations of the answer that called
them. A node that calls no model is a step without inferences. Right answers are not exported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.files import begins_with, check_output, write_whole
from workbench.base.text import one_line
from workbench.base.type_guards import is_dict
from workbench.errors import SpecError
from workbench.evaluation import add_details, find_candidate, read_rows
from workbench.lm import content_text, split_thoughts
from workbench.store import Journal, Store, dumps, kind_of, read_report

VERSION = "ATIF-v1.7"

Tree = dict[str, Any]


class AtifExport:
    """The exporter of rows (hook `register_exporters`)."""

    of_rows = True

    def __call__(
        self, store: Store, run: str, candidate: str, split: str | None, path: Path | None, overwrite: bool
    ) -> str:
        """Return the trajectories as lines of JSON, or write them, and return a line about that. Raises the errors of
        `export_trajectories` and `write_trajectories`."""
        rows = export_trajectories(store, run, candidate, split)
        if path is None:
            return "".join(f"{json.dumps(row)}\n" for row in rows)
        write_trajectories(rows, path, overwrite=overwrite)
        return f"wrote {len(rows)} row{'s' * (len(rows) != 1)} to {one_line(path)}\n"


def export_trajectories(store: Store, run: str, candidate: str = "", split: str | None = None) -> list[Tree]:
    """Return the rows of a run that have steps, as trajectories.

    Args:
        run: name of a run of `eval` or `optimize`, or its beginning, a tag, or `last`.
        candidate: a hash, `baseline` or `winner` (default).
        split: only these rows; None: all.

    Raises:
        StoreError: there is no such run or candidate, or it is damaged.
        SpecError: the run stores no steps of such rows.
    """
    row = store.find_run(run)
    report = read_report(row)
    found = read_rows(store, row, report, find_candidate(store, row, report, candidate), split=split)
    stepped = [one for one in found if one["spans"]]
    if not stepped:
        what = f"the {split} rows" if split else "rows"
        raise SpecError(
            f"run {row['run']} ({kind_of(row)}) stores no steps of {what} of this candidate",
            hint="Runs of `optimize` store those of the sealed rows; score others with workbench eval FILE.",
        )
    journal = Journal(store, row["id"])
    return [_trajectory(row, one, journal) for one in add_details(store, row, stepped)]


def write_trajectories(rows: Sequence[Tree], out: Path, *, overwrite: bool = False) -> None:
    """Write trajectories: to a `.jsonl` file one per line, to a `.json` file a single one, to a new folder a file each.

    Raises SpecError for another place, and for a file that this function did not write.
    """
    if out.suffix == ".json" and len(rows) > 1:
        raise SpecError(f"--out {out}: there are {len(rows)} rows", hint="Name a .jsonl file, or a folder.")
    if out.suffix in (".json", ".jsonl"):
        check_output(out, ours=begins_with(r'\{"schema_version": "ATIF-v1'), overwrite=overwrite)
        return write_whole(out, "".join(f"{json.dumps(row)}\n" for row in rows))
    if out.suffix or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise SpecError(
            f"--out {out} is neither a .jsonl or .json file nor a new or empty folder",
            hint="Name a .jsonl file or a new folder.",
        )
    for number, row in enumerate(rows, 1):
        write_whole(out / f"{number:0{len(str(len(rows)))}d}.json", json.dumps(row, indent=1) + "\n")
    return None


def _trajectory(run: Any, row: Mapping[str, Any], journal: Journal) -> Tree:
    steps = [step for span in row["spans"] for step in _span_steps(span, journal)]
    if not any(step["source"] == "user" for step in steps):
        steps.insert(0, {"source": "user", "message": _lines(row["inputs"] or {})})
    metrics = [step["metrics"] for step in steps if "metrics" in step]
    name = f"{run['run']}:{row['example']}" + (f"#{row['replica'] + 1}" if row["replica"] else "")
    known = {name: row[name] for name in ("split", "candidate", "score", "failure", "prediction")}
    numbered = [{"step_id": n, **step} for n, step in enumerate(steps, 1)]
    return {
        "schema_version": VERSION,
        "session_id": name,
        "trajectory_id": name,
        "agent": {"name": str(run["name"] or "workflow"), "version": str(run["version"] or "unknown")},
        "steps": numbered,
        "final_metrics": {
            "total_prompt_tokens": sum(m["prompt_tokens"] for m in metrics),
            "total_completion_tokens": sum(m["completion_tokens"] for m in metrics),
            "total_cost_usd": sum(m["cost_usd"] for m in metrics),
            "total_steps": len(steps),
        },
        "extra": {"run": run["run"], "row": row["example"], "repeat": row["replica"] + 1}
        | {k: v for k, v in known.items() if v is not None},
    }


def _span_steps(span: Mapping[str, Any], journal: Journal) -> Iterator[Tree]:
    about = {"extra": {"node": str(span["node"]), **({"error": span["error"]} if span.get("error") else {})}}
    calls, last = span.get("calls") or [], dict[str, Any]()
    if not calls:
        yield {"source": "agent", "message": _lines(span.get("outputs") or {}), "llm_call_count": 0, **about}
    before: Sequence[Mapping[str, Any]] = ()
    for call in calls:
        prompt = call.get("messages") or ()
        # A prompt that extends the one before it contains the messages in between; others are calls of their own.
        added = list(prompt)
        if last and len(prompt) > len(before) and added[: len(before)] == list(before):
            added = [m for m in added[len(before) :] if m.get("role") != "assistant"]  # it is `last`
            if results := [_result(m, last) for m in added if m.get("role") == "tool"]:
                last["observation"] = {"results": results}
            added = [m for m in added if m.get("role") != "tool"]
        if last:
            yield last
        yield from ({**_message(message), **about} for message in added)
        last, before = _answer(call, journal) | about, prompt
    if last:
        yield _with_rest(last, (span.get("notes") or {}).get("tools") or ())


def _lines(fields: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}: {value if isinstance(value, str) else dumps(value)}" for name, value in fields.items())


def _message(message: Mapping[str, Any]) -> Tree:
    """Convert a message of a prompt. An answer in a prompt, such as in an example, is context."""
    role, text = message.get("role"), content_text(message.get("content"))
    if role == "assistant":
        return {"source": "agent", "message": text, "is_copied_context": True}
    return {"source": "system" if role in ("system", "developer") else "user", "message": text}


def _result(message: Mapping[str, Any], answer: Tree) -> Tree:
    """Return the result of a call of an answer."""
    ids = [call["tool_call_id"] for call in answer.get("tool_calls", ())]
    source = {"source_call_id": message["tool_call_id"]} if message.get("tool_call_id") in ids else {}
    return {**source, "content": content_text(message.get("content"))}


def _answer(call: Mapping[str, Any], journal: Journal) -> Tree:
    stored = journal.read_call(str(call["key"])) if "key" in call else None
    response = (stored or {}).get("response") or {}
    tokens = [int(count or 0) for count in call.get("tokens") or (0, 0)]
    within, said = split_thoughts(str(call["text"] or ""))
    step: Tree = {
        "source": "agent",
        "message": said,
        "metrics": {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "cost_usd": float(call.get("usd") or 0),
        },
        "llm_call_count": 1,
    }
    if stored:
        step["model_name"] = str(stored["lm"]).partition("@")[0]
    if thoughts := "\n\n".join(filter(None, (response.get("thoughts"), within))):
        step["reasoning_content"] = thoughts
    if response.get("cached"):
        step["metrics"]["cached_tokens"] = int(response["cached"])
    if calls := [_call(one, n) for n, one in enumerate(response.get("tool_calls") or ())]:
        step["tool_calls"] = calls
    return step


def _call(call: Mapping[str, Any], number: int) -> Tree:
    given = call.get("arguments")
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        arguments = None
    return {
        "tool_call_id": str(call.get("id") or f"call-{number}"),
        "function_name": str(call.get("name")),
        "arguments": arguments if is_dict(arguments) else {"arguments": given},
    }


def _with_rest(answer: Tree, tools: Sequence[Mapping[str, Any]]) -> Tree:
    """Return the last answer of a node, with the tool calls that no later prompt contains."""
    told = len(answer.get("tool_calls", ()))
    if not tools or told == 0 or "observation" in answer:
        return answer
    pairs = zip(answer["tool_calls"], tools[-told:], strict=False)
    results = [{"source_call_id": c["tool_call_id"], "content": str(tool.get("result"))} for c, tool in pairs]
    return {**answer, "observation": {"results": results}}
