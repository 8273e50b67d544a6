"""`gepa` alone, with its default adapter, in a venv with it.   gepa_arm.py gepa ROWS URL SEED CALLS OUT

The candidate is a system prompt. Its evaluator is exact, as on the test rows; the default one looks for the label
anywhere in the answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gepa
import litellm
from gepa.adapters.default_adapter.default_adapter import EvaluationResult
from rows import read_task, write_prompt


def main(rows: Path, url: str, seed: int, calls: int, out: Path) -> None:
    task, train, val, test = read_task(rows)

    def ask(messages: Sequence[Mapping[str, Any]] | str, **settings: Any) -> str:
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else [*messages]
        settings = {"temperature": 0.0, "max_tokens": 100, **settings}
        found: Any = litellm.completion(
            "openai/model", given, api_base=f"{url}/v1", api_key="none", num_retries=0, **settings
        )
        return found.choices[0].message.content or ""

    def judge(data: Any, response: str) -> Any:
        right = response.strip() == data["answer"]
        told = "Right." if right else f"Wrong: the whole answer must be {data['answer']}."
        return EvaluationResult(score=float(right), feedback=told)

    def instances(part: Sequence[Mapping[str, str]]) -> list[Any]:
        return [{"input": row["text"], "additional_context": {}, "answer": row["label"]} for row in part]

    prompt, note = write_prompt(task), ""
    try:
        prompt = gepa.optimize(
            {"system_prompt": prompt}, instances(train), instances(val), seed=seed, max_metric_calls=int(0.75 * calls),
            task_lm=ask, evaluator=judge,
            reflection_lm=lambda text: ask(text, temperature=1.0, max_tokens=700),
        ).best_candidate["system_prompt"]  # fmt: skip
    except Exception as error:
        note = f"the start, since the search raised {type(error).__name__}: {str(error)[:300]}"
    scores = []
    for row in test:
        said = ask([{"role": "system", "content": prompt}, {"role": "user", "content": row["text"]}])
        scores.append(float(said.strip() == row["label"]))
    found = {"scores": scores, "note": note, "version": f"gepa {version('gepa')}", "prompt": prompt}
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
