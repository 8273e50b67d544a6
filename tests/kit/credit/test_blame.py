"""Attribution in a study: the node that decides failures is blamed, and guided optimizers spend their edits there."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from workbench.run import Options, optimize
from workbench.study import Optimizer, Study
from workbench.workflow import Workflow
from workbench_kit.credit import Blame, blame_nodes

sys.path.insert(0, str(Path(__file__).parents[3] / "contrib/bench/optimizers"))
import guided

ADDRESSES = [f"nodes.n{k}.instructions" for k in range(4)]


def test_edits_go_to_blamed_nodes_and_some_to_others() -> None:
    rng = random.Random(0)
    blame = Blame({"n2": 3, "n1": 1}, 4, "replay")
    drawn = Counter(blame.choose(ADDRESSES, rng) for _ in range(4000))
    shares = [drawn[a] / 4000 for a in ADDRESSES]
    assert shares == pytest.approx([0.0375, 0.25, 0.675, 0.0375], abs=0.03)
    nodes = ["n0", "n1", "n2"]
    assert sum(blame.spares("n0", nodes, rng) for _ in range(1000)) == pytest.approx(850, abs=40)
    assert not any(blame.spares("n2", nodes, rng) for _ in range(100))
    assert not any(blame.spares(node, ["n0", "n3"], rng) for node in ("n0", "") for _ in range(100))


def test_without_blame_all_nodes_are_equal() -> None:
    rng = random.Random(0)
    drawn = Counter(Blame().choose([*ADDRESSES, "lm.temperature"], rng) for _ in range(5000))
    assert all(n == pytest.approx(1000, abs=120) for n in drawn.values()) and len(drawn) == 5
    assert not any(Blame().spares("n0", ["n0"], rng) for _ in range(100))


class Attributes(Optimizer):
    """Asks for the attribution of the start, twice."""

    async def optimize(self, study: Study) -> Workflow:
        before = study.ledger.spent.calls
        FOUND.append((await blame_nodes(study, study.workflow), study.ledger.spent.calls - before))
        again = study.ledger.spent.calls
        assert (await blame_nodes(study, study.workflow)) is FOUND[-1][0] and study.ledger.spent.calls == again
        return study.best


FOUND: list[tuple[Blame, int]] = []


def attribute(folder: Path, seed: int, *, proposer: bool = True) -> tuple[Blame, int]:
    path = guided.write_file(folder, "random", False, seed)
    path.write_text(path.read_text().replace('{"random": {"guided": false}}', '"random"'))
    if not proposer:
        path.write_text(path.read_text().replace('"model": "openai/strong"', '"model": "openai/weak"'))
    faulty = int(guided.NODES * guided.hash_of("faulty", seed))
    out, database = Options(out=folder / "out.yaml"), folder / "a.db"
    optimize(path, options=out, database=database, optimizers=[("a", Attributes())], pool=guided.simulated_pool(faulty))
    return FOUND.pop()


@pytest.mark.parametrize("seed", range(3))
def test_replays_by_the_proposer_blame_the_faulty_node(seed: int, tmp_path: Path) -> None:
    blame, calls = attribute(tmp_path, seed)
    faulty = int(guided.NODES * guided.hash_of("faulty", seed))
    assert blame.decisive == {f"node{faulty}": blame.examined} and blame.method == "replay"
    assert 0 < calls < 16 * guided.NODES + blame.examined * 5 * guided.NODES


def test_without_another_model_the_spectra_of_runs_are_compared(tmp_path: Path) -> None:
    """Here every row goes through all nodes and the outputs follow each other, so the earliest that differs counts."""
    blame, calls = attribute(tmp_path, 0, proposer=False)
    assert blame.method == "spectrum" and calls == 16 * guided.NODES
    assert next(iter(blame.decisive)) == f"node{int(guided.NODES * guided.hash_of('faulty', 0))}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["textgrad"])
def test_guided_search_takes_fewer_calls(name: str) -> None:
    """The small tier of contrib/bench/optimizers/guided.py."""
    sides = [[guided.calls_to_best((name, g, seed)) for seed in range(5)] for g in (True, False)]
    assert sum(sides[0]) < sum(sides[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("evolve", marks=pytest.mark.long), "rewrite"])
def test_guidance_saves_a_quarter_of_the_calls(name: str) -> None:
    sides = [[guided.calls_to_best((name, g, seed)) for seed in range(6)] for g in (True, False)]
    assert sum(sides[0]) <= 0.75 * sum(sides[1])
