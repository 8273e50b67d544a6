"""What `estimate` says of a file is what its baseline takes: each file of the gallery, with its scripted model."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_tried import GALLERY, Scored
from tests.whole.test_gallery_own_rows import CONFINED, NAMES

from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import content_text
from workbench.run import estimate, prepare
from workbench.workflow import CallRecord

#: One token each: a word's six letters, a digit, another character. Three more open and close a message.
TOKEN = re.compile(r"[^\W\d_]{1,6}|\d|[^\w\s]|_")
#: Files with a node that nothing is known of before it runs.
UNSEEN = {"internet_of_agents": "an agent is a program", "webnav": "a search in a world has no other node inside"}
INTERVAL = re.compile(r"(\d+) calls, about (\d+) tokens in \((\d+) to (\d+|more)\)")


def tokens_of(call: CallRecord) -> int:
    parts = [content_text(message.get("content")) for message in call.messages]
    parts += [str(part) for part in (*call.tools, call.response_format) if part]
    return sum(3 + len(TOKEN.findall(part)) for part in parts)


def printed(found: dict[str, Any]) -> tuple[int, int, int, float]:
    """Most calls, the input tokens, and their bounds, of the baseline."""
    (line,) = (line for line in found["lines"] if line.startswith("Baseline on val: "))
    match = INTERVAL.search(line)
    assert match is not None, line
    calls, about, least, most = match.groups()
    bounds = int(least), math.inf if most == "more" else int(most)
    assert bounds[0] <= int(about) <= bounds[1], line
    return int(calls), int(about), *bounds


@pytest.mark.parametrize("name", NAMES)
def test_the_baseline_of_a_file_takes_what_estimate_said(name: str, tmp_path: Path) -> None:
    if name in CONFINED and shutil.which("bwrap") is None:
        pytest.skip("commands of models need bubblewrap")
    _, _, task, optimizers = prepare(GALLERY / f"{name}.yaml", [("budget.calls", 100_000)])
    max_calls, about, least, most = printed(estimate(task, optimizers))
    spans = Scored(name, tmp_path, split="val").spans
    sent = [call for span in spans for call in span.calls if not call.cached]
    taken = sum(map(tokens_of, sent))
    assert len(sent) <= max_calls and least <= taken <= most
    assert (most == math.inf) == (name in UNSEEN)
    assert about * len(sent) <= 2 * taken * max_calls, "the tokens of a call"


#: Files of the small model that comes with workbench, whose tokenizer counts; a judge asks more.
OWN = sorted(path.stem for path in GALLERY.parent.glob("*.yaml") if path.stem != "induced")
QUICK = {"quickstart", "dspy_module", "search", "astar"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in OWN])
def test_a_model_of_this_machine_takes_what_estimate_said(name: str, tmp_path: Path) -> None:
    file, sets = GALLERY.parent / f"{name}.yaml", [("budget", {"calls": 10_000})]
    _, _, task, optimizers = prepare(file, sets)
    max_calls, _, least, most = printed(estimate(task, optimizers))
    spent = evaluate(file, options=EvalOptions(sets, "val"), database=tmp_path / "e.db").spent
    assert 0 < spent["calls"] <= max_calls and least <= spent["prompt_tokens"] <= most
