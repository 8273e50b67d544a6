"""A model whose price is not known: no run without a call is recorded, and no table calls it free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.evaluation.conftest import WriteFile, echo, write
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.evaluation import compare_sides, comparison_lines, evaluate, read_side, run_single, write_markdown
from workbench.inference import predict_file
from workbench.lm import Request, Response
from workbench.run import Options, optimize
from workbench.store import Store

__all__ = ["write"]  # a fixture


class Unpriced(Script):
    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:  # type: ignore[override]
        return None

    async def complete(self, request: Request) -> Response:
        return replace(await super().complete(request), usd=None)


def test_a_ceiling_that_cannot_be_kept_is_refused_before_there_is_a_run(write: WriteFile, tmp_path: Path) -> None:
    lm = Unpriced(echo)
    with pytest.raises(SpecError, match="budget.usd cannot be kept"):
        evaluate(write(budget={"usd": 1}), database=tmp_path / "a.db", pool=lm)
    assert not lm.requests and not (tmp_path / "a.db").exists()


class AssumedFree(Script):
    """On this machine, where it may forward calls to a paid service."""

    assumed_free = True


@pytest.mark.parametrize("unknown", [Unpriced, AssumedFree])
def test_what_has_no_price_is_not_shown_as_free(unknown: type[Script], write: WriteFile, tmp_path: Path) -> None:
    reports = [evaluate(write(), database=tmp_path / "a.db", pool=pool) for pool in (unknown(echo), Script(echo))]
    assert [report.unpriced for report in reports] == [["openai/scripted"], []]
    assert ["; unpriced" in "\n".join(report.lines()) for report in reports] == [True, False]
    store = Store(tmp_path / "a.db")
    sides = [read_side(store, report.run) for report in reports]
    store.close()
    first, second = comparison_lines(sides, compare_sides(sides))[1:3]
    assert first.split()[-1] == "unpriced" and second.split()[-1] == "0"
    write_markdown(reports, tmp_path / "a.md")
    assert [line.split(" | ")[-3] for line in (tmp_path / "a.md").read_text().splitlines()[2:4]] == [
        "unpriced",
        "0",
    ]
    shown = CliRunner().invoke(cli, ["compare", *(report.run for report in reports), "--db", str(tmp_path / "a.db")])
    assert shown.exit_code == 0 and "unpriced" in shown.output


def test_every_command_tells_what_has_no_price(write: WriteFile, tmp_path: Path) -> None:
    file = write(
        search={"nodes.say.instructions": ["Say it.", "Say it well."]},
        optimize=[{"random": {"trials": 2}}],
        budget={"calls": 200},
    )
    options = Options(allow_unproved=True, out=str(tmp_path / "o.yaml"))
    report = optimize(file, options=options, database=tmp_path / "a.db", pool=Unpriced(echo))
    said = "\n".join(report.lines())
    assert "unpriced (" in said and said.count("Dollars unknown") == 1 and "$0" not in said
    (tmp_path / "in.jsonl").write_text('{"word": "w1"}\n')
    found = predict_file(file, str(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", pool=Unpriced(echo))
    assert list(found.unpriced.values()) == [1] and "Dollars unknown" in found.warnings[0]
    outcome = run_single(file, {"word": "w1"}, None, [], str(tmp_path / "b.db"), pool=Unpriced(echo))
    assert "Dollars unknown" in outcome["warnings"][0]
