"""A prompt that a server cut is told, and fails where the server counts the same for rows of different length."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.said import Asked, billed, saying
from tests.ledger.test_stated_cost import write

from workbench.evaluation import EvalReport, evaluate
from workbench.inference import predict_file
from workbench.proof import Report
from workbench.run import Options, optimize


def run(folder: Path, texts: list[str], count: Callable[[int], int], command: Any = evaluate, **spec: Any) -> Any:
    """The report on rows with these texts. count: what the server counts, by the words it was sent. spec: settings."""

    def reply(asked: Asked) -> object:
        words = len(json.dumps(asked.body["messages"], ensure_ascii=False).split())
        return billed(tokens=count(words))

    with saying(reply) as server:
        path = write(folder, server.base, concurrency=1)
        rows = [{"text": text, "label": "technical"} for text in texts]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        made = {**json.loads(path.read_text()), **spec}
        made["data"]["split"] = {"train": 1, "val": len(texts) - 2, "test": 1}
        path.write_text(json.dumps(made))
        return command(path, database=folder / "runs.db")


def told(report: EvalReport | Report) -> list[str]:
    return [line for line in report.warnings if "may have cut" in line]


LONG = [f"{n} " + "some words of a row " * (2_000 + 300 * n) for n in range(8)]


def test_the_same_count_for_rows_of_different_length_is_too_long(tmp_path: Path) -> None:
    report = run(tmp_path, LONG, lambda words: 2_050)
    assert report.failures == {"too_long": 5} and len(told(report)) == 1
    assert "counted 2,050 tokens" in told(report)[0]
    assert report.spent["usd"] == pytest.approx(6 * (2_050 + 2 * 5) / 1e6)  # what was cut was billed


def test_a_count_that_fits_no_prompt_is_told_once(tmp_path: Path) -> None:
    same = [f"{n} " + "some words of a row " * 2_000 for n in range(8)]
    report = run(tmp_path, same, lambda words: 2_050)
    assert not report.failures and len(told(report)) == 1


@pytest.mark.slow
def test_predict_tells_it_too(tmp_path: Path) -> None:
    def predict(path: Path, database: Path) -> list[str]:
        return predict_file(path, str(tmp_path / "rows.jsonl"), tmp_path / "out.jsonl").warnings

    same = [f"{n} " + "some words of a row " * 2_000 for n in range(8)]
    (told,) = run(tmp_path, same, lambda words: 2_050, predict)
    assert "counted 2,050 tokens" in told


@pytest.mark.slow
def test_optimize_tells_it_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    same = [f"{n} " + "some words of a row " * 2_000 for n in range(8)]
    space = {"search": {"nodes.sort.instructions": ["Sort.", "Sort it."]}, "optimize": [{"random": {"trials": 1}}]}
    search = partial(optimize, options=Options(allow_unproved=True))
    assert len(told(run(tmp_path, same, lambda words: 2_050, search, **space))) == 1


@pytest.mark.slow
def test_rows_whose_unlike_part_is_at_their_end_are_found(tmp_path: Path) -> None:
    texts = ["some words of a row " * (2_000 + 300 * n) + str(n) for n in range(8)]
    assert run(tmp_path, texts, lambda words: 2_050).failures.get("too_long", 0) >= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (LONG, lambda words: words),  # an efficient tokenizer
        (LONG, lambda words: int(words * 0.6)),
        (LONG, lambda words: words * 3),
        (LONG, lambda words: 0),
        (LONG, lambda words: 50),  # a constant, as simple servers give
        (["short " + str(n) for n in range(8)], lambda words: 300),
        ([("-" * 40_000) + str(n) for n in range(8)], lambda words: 700),  # many characters in a token
        ([f"{n} " + "eyJhbGciOi" * 3_000 for n in range(8)], lambda words: 9_000),
    ],
)
def test_other_counts_give_no_alarm(texts: list[str], count: Callable[[int], int], tmp_path: Path) -> None:
    report = run(tmp_path, texts, count)
    assert not told(report) and not report.failures


@pytest.mark.slow
def test_a_server_that_counts_no_cached_tokens_gives_no_alarm(tmp_path: Path) -> None:
    calls = iter(range(100))
    texts = ["the same long beginning of all rows " * 1_000 + "another end " * (200 + n) for n in range(8)]
    report = run(tmp_path, texts, lambda words: words if not next(calls) else 300)
    assert not told(report) and not report.failures


@pytest.mark.slow
def test_rows_without_blanks_are_found(tmp_path: Path) -> None:
    texts = [f"{n}" + "\u9019\u662f\u4e00\u500b\u5f88\u9577\u7684\u53e5\u5b50" * (1_500 + 200 * n) for n in range(8)]
    report = run(tmp_path, texts, lambda words: 2_048)
    assert report.failures == {"too_long": 5} and told(report)
