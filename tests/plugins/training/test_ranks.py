"""All processes of a training draw: the rows of one process, cut into parts, and a death that ends the run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.processes import end, start_two  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402

from workbench.kit.generation import Generator, Row  # noqa: E402
from workbench.lm import Request, Response  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.objective import make_objective  # noqa: E402
from workbench_training.scale import distributed, orders  # noqa: E402
from workbench_training.scale.drawing import SpreadEngine, cut_batch, unless_one_dies  # noqa: E402
from workbench_training.serving.policy_lm import LocalEngine  # noqa: E402
from workbench_training.settings import Learning  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]
torch.set_num_threads(1)


# What the two processes do. `count` is of the rows that each process draws.


def worker(base: str, out: str, case: str) -> None:
    torch.set_num_threads(1)
    rank, folder = int(os.environ["RANK"]), Path(out)
    seen: dict[str, Any] = {"rows": 0, "steps": 0, "policies": []}
    watch(seen)
    distributed.share(rank, 2, lambda: CASES[case](base, folder) or 0)
    (folder / f"{case}-{rank}.json").write_text(json.dumps(seen))


def watch(seen: dict[str, Any]) -> None:
    begin, logits = Generator._begin, Generator._logits

    def begun(self: Generator, rows: list[Row]) -> Any:
        seen["rows"] += len(rows)
        for row in rows:
            if row.max_tokens == 13 and int(os.environ["RANK"]):
                raise ValueError("this row cannot be drawn")
            if row.max_tokens == 14 and int(os.environ["RANK"]):
                os.kill(os.getpid(), signal.SIGKILL)
        return begin(self, rows)

    def computed(self: Generator, ids: Any, *more: Any) -> Any:
        seen["steps"] += ids.shape[1] == 1
        return logits(self, ids, *more)

    Generator._begin, Generator._logits = begun, computed  # type: ignore[method-assign]


def make_learner(base: str, **learning: Any) -> Any:
    settings = Learning.model_validate({"rate": 1e-2, **learning})
    policy = distributed.make_policy(settings, base, device="cpu")
    return distributed.learner_for(policy, make_objective("grpo"), settings)


def requests(count: int = 12, turn: int = 0) -> list[Request]:
    """Of three prompts of different lengths, each with a stop for some; the longest answers differ."""
    return [
        Request(
            ({"role": "user", "content": "abc"[i % 3] * (3 + 20 * (i % 3)) + str(turn)},),
            0.0 if i == 5 else 1.0,
            6 + i,
            replica=i,
            stop=("7",) if i % 2 else (),
            top_p=0.9 if i == 4 else 1.0,
        )
        for i in range(count)
    ]


def draw(engine: LocalEngine, asked: Sequence[Request]) -> list[Response]:
    async def all_of_them() -> list[Response]:
        return list(await asyncio.gather(*map(engine.complete, asked)))

    return asyncio.run(all_of_them())


def plain(found: Sequence[Response]) -> list[Any]:
    return [[r.text, r.finish, list(r.prompt_ids or ()), list(r.token_ids or ()), list(r.logprobs or ())] for r in found]


def case_draw(base: str, out: Path) -> None:
    made = make_learner(base)
    found = {}
    for name, continuous in (("static", False), ("continuous", True)):
        engine = SpreadEngine(made.policy, 0, continuous=continuous)
        found[name] = plain(draw(engine, requests()))
    (out / "drawn.json").write_text(json.dumps(found))
    made.close()


CASES: dict[str, Callable[[str, Path], Any]] = {"draw": case_draw}


def both(base: str, out: Path, case: str) -> list[tuple[int, str, str]]:
    root = str(Path(__file__).parents[3])
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from tests.plugins.training.test_ranks import worker; "
        f"worker({base!r}, {str(out)!r}, {case!r})"
    )
    return [end(job) for job in start_two("-c", code)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model") / "base", 1))


def test_smoke(base: str, tmp_path: Path) -> None:
    ends = both(base, tmp_path, "draw")
    assert [code for code, _, _ in ends] == [0, 0], (ends[0][2][-3000:], ends[1][2][-3000:])
    found = json.loads((tmp_path / "drawn.json").read_text())
    alone = plain(draw(LocalEngine(Policy(base, device="cpu").generator), requests()))
    for name in found:
        for a, b in zip(found[name], alone, strict=True):
            assert a[:4] == b[:4] and max(abs(x - y) for x, y in zip(a[4], b[4], strict=True)) < 1e-5
    print([json.loads((tmp_path / f"draw-{r}.json").read_text()) for r in (0, 1)])
