"""What `estimate` says of a DSPy module: the prompts of its own adapters are counted."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.scripted import Script, run_rows

from workbench.ledger import estimate_prompt
from workbench.lm import Request
from workbench.run import estimate, prepare

MODULE = """
import dspy

class Three(dspy.Module):
    signature = "text -> label"

    def __init__(self):
        super().__init__()
        self.think = dspy.ChainOfThought("text -> plan")
        self.review = dspy.Predict("text, plan -> review")
        self.sort = dspy.Predict("text, plan, review -> label")

    def forward(self, text):
        plan = self.think(text=text).plan
        return self.sort(text=text, plan=plan, review=self.review(text=text, plan=plan).review)
"""


def test_a_module_takes_what_estimate_said_of_it(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    rows = [{"text": f"ticket {i} about {'word ' * i}", "label": "ab"[i % 2]} for i in range(24)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = {
        "name": "t",
        "lm": "bundled/nano",
        "data": {"file": "rows.jsonl", "split": {"train": 8, "val": 8, "test": 8}},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"dspy": "python:module.py:Three", "calls": 3}},
        "optimize": [{"random": {"trials": 2}}],
        "budget": {"calls": 500},
    }
    (tmp_path / "w.yaml").write_text(json.dumps(written))
    _, _, task, optimizers = prepare(tmp_path / "w.yaml")
    found = estimate(task, optimizers)

    def say(request: Request) -> str:
        asked, long = str(request.messages[-1]["content"]), "as long as it may be " * 70
        if "`[[ ## plan ## ]]`" in asked:
            return f"[[ ## reasoning ## ]]\nr\n\n[[ ## plan ## ]]\n{long}\n\n[[ ## completed ## ]]"
        field, value = ("review", long) if "`[[ ## review ## ]]`" in asked else ("label", "a")
        return f"[[ ## {field} ## ]]\n{value}\n\n[[ ## completed ## ]]"

    script = Script(say)
    run_rows(task.workflow, [dict(row.fields) for row in task.dataset.val], script, tmp_path / "run.db")
    tokens = [estimate_prompt(request) for request in script.requests]
    assert len(tokens) == found["baseline_calls"] == 24
    assert found["baseline"]["min_input_tokens"] <= sum(tokens) <= found["baseline"]["max_input_tokens"]
    assert abs(found["input_tokens"] - sum(tokens[::3]) / 8) < 10, "the first prompts are those of the run"
