"""`textgrad` alone, in a venv with it.   textgrad_arm.py textgrad ROWS URL SEED CALLS OUT

As in its tutorial on prompt optimization: batches of three rows, an exact match as the loss, and a step is taken back
where val gets worse.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()  # its cache on disk would hide calls from the proxy
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import textgrad
from openai import OpenAI
from rows import read_task, write_prompt
from textgrad.autograd.string_based_ops import StringBasedFunction
from textgrad.engine.local_model_openai_api import ChatExternalClient


def main(rows: Path, url: str, seed: int, calls: int, out: Path) -> None:
    task, train, val, test = read_task(rows)

    engine: Any = ChatExternalClient(OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), "model")
    textgrad.set_backward_engine(engine, override=True)
    start = write_prompt(task)
    prompt: Any = textgrad.Variable(start, requires_grad=True, role_description="system prompt of a classifier")
    model = textgrad.BlackboxLLM(engine, prompt)
    optimizer = textgrad.TextualGradientDescent(engine=engine, parameters=[prompt])
    purpose = "Compares the answer with the label: 1 if they are equal, else 0."
    compare = StringBasedFunction(lambda prediction, label: str(int(prediction.value.strip() == label.value)), purpose)

    def score(part: Sequence[Mapping[str, str]]) -> list[float]:
        found = [engine.generate(row["text"], system_prompt=prompt.value) for row in part]
        return [float(said.strip() == row["label"]) for said, row in zip(found, part, strict=True)]

    note, draw, best = "", random.Random(seed), start
    try:
        reached = sum(score(val))
        for _ in range(max(1, (calls - len(val)) // (len(val) + 10))):
            optimizer.zero_grad()
            losses = []
            for row in draw.sample(train, 3):
                asked = textgrad.Variable(row["text"], requires_grad=False, role_description="the input")
                label = textgrad.Variable(row["label"], requires_grad=False, role_description="the label")
                losses.append(compare(inputs={"prediction": model(asked), "label": label}))
            textgrad.sum(losses).backward()
            optimizer.step()
            now = sum(score(val))
            if now < reached:
                prompt.set_value(best)
            else:
                best, reached = prompt.value, now
    except Exception as error:
        note = f"cut short, since a step raised {type(error).__name__}: {str(error)[:300]}"
    prompt.set_value(best)
    scores = score(test)
    found = {"scores": scores, "note": note, "version": f"textgrad {version('textgrad')}", "prompt": best}
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
