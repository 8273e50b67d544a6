"""What a report says of calls that went wrong, and of what was never tried."""

from __future__ import annotations

from pathlib import Path

from tests.planted import PlantedLM, plant

from workbench import Optimizer, Study, Workflow
from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench.run import Options, optimize, resume
from workbench.session import Interrupted


class Breaking(PlantedLM):
    """The answer to its first request breaks off."""

    async def complete(self, request: Request) -> Response:
        if not self.requests:
            self.requests += 1
            raise LMError("broken", "half an answer")
        return await super().complete(request)


class Stopped(Optimizer):
    """Is interrupted before its first candidate."""

    async def optimize(self, study: Study) -> Workflow:
        raise Interrupted("interrupted")


def test_a_report_says_how_many_candidates_the_replay_has_not_come_to(tmp_path: Path) -> None:
    whole, lm = plant(tmp_path, lambda r: 0.5, {"random": {"trials": 3}}, calls=400)
    assert whole.candidates > 2 and not any("did not come to" in w for w in whole.warnings)
    stopped = resume("last", database=tmp_path / "run.db", pool=lm, optimizers=[("random", Stopped())])
    assert stopped.status == "interrupted"
    said = f"{whole.candidates - 1} candidates that were made before are not in this report"
    assert any(warning.startswith(said) for warning in stopped.warnings)
    again = resume("last", database=tmp_path / "run.db", pool=lm)
    assert again.candidates == whole.candidates and not any("did not come to" in w for w in again.warnings)


def test_the_bill_names_what_an_answer_that_broke_off_may_cost(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    report = optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=Breaking(lambda r: 0.5),
                      options=Options(out=str(tmp_path / "o.yaml")))  # fmt: skip
    tokens, usd = report.spent["maybe_tokens"], report.spent["maybe_usd"]
    assert tokens > 0 and usd > 0
    assert (
        f"; up to {tokens} tokens and ${usd:.4f} more if the server bills calls whose answers never came whole"
        in (report.lines()[-2])
    )
