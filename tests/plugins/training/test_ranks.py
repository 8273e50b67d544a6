"""All processes of a training draw: the rows of one process, cut into parts, and a death that ends the run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file  # noqa: E402
from tests.helpers.grpo_runs import run, write  # noqa: E402
from tests.helpers.grpo_worlds import bandit, sevens  # noqa: E402
from tests.helpers.processes import end, start_two  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402
from tests.plugins.training.test_learner import ADVANTAGES, some_rows  # noqa: E402

from workbench.lm import Request  # noqa: E402
from workbench_engine.generation import Generator, Row  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.presets import make_objective  # noqa: E402
from workbench_training.scale import distributed, orders  # noqa: E402
from workbench_training.scale.drawing import SpreadEngine, cut_batch, unless_one_dies  # noqa: E402
from workbench_training.serving.policy_lm import LocalEngine  # noqa: E402
from workbench_training.settings import Learning, Lora  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]
torch.set_num_threads(1)


ROOT = str(Path(__file__).parents[3])
PLANTED, DEADLY = 60, 61  # most tokens of rows that the second process cannot draw, or dies of


# What the two processes do


def worker(base: str, out: str, case: str) -> None:
    """In the first process one of the cases below. Each process notes how many rows and steps it decoded."""
    torch.set_num_threads(1)
    rank, folder = int(os.environ["RANK"]), Path(out)
    seen = {"rows": 0, "steps": 0}
    watch(seen, rank)

    def lead() -> int:
        facts = CASES[case](base, folder)
        (folder / "facts.json").write_text(json.dumps(facts))
        return 0

    distributed.share(rank, 2, lead)
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen))


def watch(seen: dict[str, int], rank: int) -> None:
    begin, logits = Generator._begin, Generator._logits

    def begun(self: Generator, rows: list[Row]) -> Any:
        seen["rows"] += len(rows)
        most = {row.max_tokens for row in rows} if rank else set()
        if PLANTED in most:
            raise ValueError("this row cannot be drawn")
        if DEADLY in most:
            os.kill(os.getpid(), signal.SIGKILL)
        return begin(self, rows)

    def computed(self: Generator, ids: Any, *more: Any) -> Any:
        seen["steps"] += ids.shape[1] == 1
        return logits(self, ids, *more)

    Generator._begin, Generator._logits = begun, computed  # type: ignore[method-assign]


def lead_policy(base: str, *others: Any, **settings: Any) -> Any:
    """A learner that leads those of the other processes."""
    how = {name: settings.pop(name) for name in ("lora", "name", "seed", "beside") if name in settings}
    learning = Learning.model_validate({"rate": 1e-2, **settings})
    policy = distributed.make_policy(learning, base, device="cpu", **how)
    return distributed.learner_for(policy, make_objective("grpo"), learning, others)


def requests(most: int = 6, count: int = 12) -> list[Request]:
    """Of three prompts of different lengths; some have stops, one is greedy, one has a nucleus."""
    return [
        Request(
            ({"role": "user", "content": "abc"[i % 3] * (3 + 20 * (i % 3))},),
            0.0 if i == 5 else 1.0,
            most + i,
            replica=i,
            stop=("7",) if i % 2 else (),
            top_p=0.9 if i == 4 else 1.0,
        )
        for i in range(count)
    ]


async def draw(engine: LocalEngine, asked: Sequence[Request]) -> list[Any]:
    """What the engine answers, as JSON."""
    found = await asyncio.gather(*map(engine.complete, asked))
    return [
        [r.text, r.finish, list(r.prompt_ids or ()), list(r.token_ids or ()), list(r.logprobs or ())] for r in found
    ]


async def converse(engine: LocalEngine, rollout: int, turns: int = 3) -> list[Any]:
    """Turns that continue each other: (prompt, answer) of each."""
    messages, found = list[dict[str, Any]](), list[Any]()
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{rollout} {turn}"})
        answer = await engine.complete(Request(tuple(messages), 1.0, 4 + 3 * (rollout % 3), replica=rollout))
        messages.append({"role": "assistant", "content": answer.text})
        found.append([list(answer.prompt_ids or ()), list(answer.token_ids or ())])
    return found


async def rollouts(engine: LocalEngine) -> list[Any]:
    return list(await asyncio.gather(*(converse(engine, i) for i in range(8))))


def step(made: Any, seed: int = 0) -> None:
    made.step(some_rows(8, seed=seed), ADVANTAGES, seed)


def drawn_in_both_ways(base: str, out: Path) -> dict[str, Any]:
    made, facts = lead_policy(base), {}
    for continuous in (False, True):
        engine = SpreadEngine(made.policy, 0, continuous=continuous)
        facts[str(continuous)] = [asyncio.run(draw(engine, requests())), asyncio.run(rollouts(engine))]
    made.close()
    facts["closed"] = asyncio.run(draw(SpreadEngine(made.policy, 0, continuous=False), requests()))
    return facts


def drawn_by_two_adapters(base: str, out: Path) -> dict[str, Any]:
    first = lead_policy(base, lora=Lora(), name="a", seed=1)
    second = lead_policy(base, first, lora=Lora(), name="b", seed=2, beside=first.policy)
    step(first, 0)
    step(second, 1)
    facts = dict[str, Any]()
    for continuous in (False, True):
        engines = [SpreadEngine(made.policy, 0, continuous=continuous) for made in (first, second)]

        async def both(engines: list[SpreadEngine] = engines) -> list[Any]:
            return list(await asyncio.gather(*(draw(engine, requests()) for engine in engines)))

        facts[str(continuous)] = asyncio.run(both())
    facts["alone"] = [asyncio.run(draw(LocalEngine(made.policy.generator), requests())) for made in (first, second)]
    return facts


def drawn_after_each_change(base: str, out: Path) -> dict[str, Any]:
    """Immediately after the first process is done with a change the other one may still be at it."""
    made, facts = lead_policy(base), dict[str, Any]()
    start = made.snapshot()
    engine = SpreadEngine(made.policy, 0, continuous=False)

    def note(name: str) -> None:
        facts[name] = [asyncio.run(draw(e, requests())) for e in (engine, LocalEngine(made.policy.generator))]

    step(made)
    note("step")
    tensors = made.tensors()
    saved = {part: {k: v.clone() for k, v in found.items()} for part, found in tensors.items()}
    made.go_back(start)
    note("back")
    made.load(saved)
    note("load")
    return facts


def drawn_from_shares(base: str, out: Path) -> dict[str, Any]:
    made = lead_policy(base, fsdp=True)
    step(made)
    engine = SpreadEngine(made.policy, 0, continuous=False)
    return {"drawn": [asyncio.run(draw(e, requests())) for e in (engine, LocalEngine(made.policy.generator))]}


def a_row_that_cannot_be_drawn(base: str, out: Path) -> dict[str, Any]:
    made, facts = lead_policy(base), dict[str, Any]()
    for continuous in (False, True):
        engine = SpreadEngine(made.policy, 0, continuous=continuous)

        async def lost(engine: SpreadEngine = engine) -> list[str]:
            asked = [Request(({"role": "user", "content": "a" * (i + 1)},), 1.0, PLANTED) for i in range(2)]
            found = await asyncio.gather(*map(engine.complete, asked), return_exceptions=True)
            return [str(one) if isinstance(one, BaseException) else "drawn" for one in found]

        facts[str(continuous)] = [asyncio.run(lost()), asyncio.run(draw(engine, requests()))]
    return facts


def a_death(base: str, out: Path) -> dict[str, Any]:
    made = lead_policy(base)
    facts = dict[str, Any]()
    continuous = out.name == "continuous"
    engine = SpreadEngine(made.policy, 0, continuous=continuous)
    ended = list[str]()

    async def schedule() -> None:
        try:
            await draw(
                engine,
                [
                    *requests(),
                    *(Request(({"role": "user", "content": "z"},), 1.0, DEADLY, replica=i) for i in range(4)),
                ],
            )
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        finally:
            await engine.aclose()

    try:
        asyncio.run(unless_one_dies(schedule(), [engine]))
    except orders.ProcessDied as error:
        facts = {"error": str(error), "calls": ended}
    made.close()
    return facts


def learned_on_two_seeds(base: str, out: Path) -> dict[str, Any]:
    shares = []
    for seed in range(2):
        made = bandit(
            out,
            sevens,
            seed=seed,
            steps=40,
            checkpoints=f"schedule{seed}",
            engine_of=partial(SpreadEngine, continuous=seed == 1),
        )
        late = [sevens(text) for step, text in made.source.drawn if step >= 35]  # type: ignore[attr-defined]
        early = [sevens(text) for step, text in made.source.drawn if step < 2]  # type: ignore[attr-defined]
        shares.append([sum(early) / len(early), sum(late) / len(late)])
    return {"shares": shares}


CASES: dict[str, Callable[[str, Path], dict[str, Any]]] = {
    f.__name__: f
    for f in (
        drawn_in_both_ways,
        drawn_by_two_adapters,
        drawn_after_each_change,
        drawn_from_shares,
        a_row_that_cannot_be_drawn,
        a_death,
        learned_on_two_seeds,
    )
}


def play(case: Callable[[str, Path], Any], base: str, out: Path) -> list[tuple[int, str, str]]:
    """How both processes end."""
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); from tests.plugins.training.test_ranks import worker; "
        f"worker({base!r}, {str(out)!r}, {case.__name__!r})"
    )
    return [end(job) for job in start_two("-c", code)]


def facts_of(case: Callable[[str, Path], Any], base: str, out: Path) -> tuple[dict[str, Any], list[dict[str, int]]]:
    """The case's facts, and what each process decoded."""
    ends = play(case, base, out)
    assert [code for code, _, _ in ends] == [0, 0], (ends[0][2][-3000:], ends[1][2][-3000:])
    seen = [json.loads((out / f"seen-{rank}.json").read_text()) for rank in (0, 1)]
    return json.loads((out / "facts.json").read_text()), seen


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether answers are equal, with log-probabilities up to rounding."""
    assert all(answer[3] and len(answer[3]) == len(answer[4]) for answer in expected)
    return all(
        a[:4] == b[:4] and max(abs(x - y) for x, y in zip(a[4], b[4], strict=True)) < 1e-4
        for a, b in zip(found, expected, strict=True)
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model") / "base", 1, positions=256))


# Answers


def test_both_processes_draw_what_one_draws(base: str, tmp_path: Path) -> None:
    facts, seen = facts_of(drawn_in_both_ways, base, tmp_path)
    generator = Policy(base, device="cpu").generator
    alone = asyncio.run(draw(LocalEngine(generator), requests()))
    talks = asyncio.run(rollouts(LocalEngine(generator)))
    assert len({str(answer[3]) for answer in alone}) > 8 and {answer[1] for answer in alone} >= {"stop", "length"}
    for continuous in ("False", "True"):
        answers, conversations = facts[continuous]
        assert same(answers, alone)
        assert conversations == talks, "a turn goes on from the tokens before, whoever drew them"
    assert same(facts["closed"], alone)
    # 12 calls and 24 turns in each of two ways, shared by who is free; and 12 calls where nobody is led any more.
    assert seen[0]["rows"] + seen[1]["rows"] == 2 * 36 + 12 and 22 <= seen[1]["rows"] <= 50


def test_two_adapters_are_drawn_at_once_each_with_its_own_weights(base: str, tmp_path: Path) -> None:
    facts, seen = facts_of(drawn_by_two_adapters, base, tmp_path)
    for continuous in ("False", "True"):
        assert all(map(same, facts[continuous], facts["alone"]))
    first, second = facts["alone"]
    assert [a[3] for a in first] != [b[3] for b in second] and seen[1]["rows"] == 24


def test_what_is_drawn_after_a_change_is_drawn_with_the_new_weights(base: str, tmp_path: Path) -> None:
    facts, seen = facts_of(drawn_after_each_change, base, tmp_path)
    assert all(same(*found) for found in facts.values()) and seen[1]["rows"] == 18
    assert facts["step"][1] == facts["load"][1] != facts["back"][1]


def test_weights_in_shares_are_drawn_with_by_both(base: str, tmp_path: Path) -> None:
    facts, seen = facts_of(drawn_from_shares, base, tmp_path)
    assert same(*facts["drawn"]) and seen[1]["rows"] == 6


def test_a_batch_is_cut_into_equal_parts_that_keep_equal_prompts_together() -> None:
    rows = [Row([k] * length, 1, 1.0, 1.0, (), 0) for k in range(4) for length in (3, 9, 3, 3)]
    parts = cut_batch(rows, 3)
    assert [len(part) for part in parts] == [6, 5, 5] and {id(r) for p in parts for r in p} == {id(r) for r in rows}
    assert sum(len({tuple(row.prompt_ids) for row in part}) for part in parts) <= 8 + 2  # 8 prompts, cut twice
    assert [len(part) for part in cut_batch(rows[:1], 3)] == [1, 0, 0]


# Errors


def test_an_error_in_the_second_process_reaches_who_asked_and_nobody_else(base: str, tmp_path: Path) -> None:
    facts, _ = facts_of(a_row_that_cannot_be_drawn, base, tmp_path)
    told = "process 1: ValueError: this row cannot be drawn"
    (batch, after), (joined, later) = facts["False"], facts["True"]
    assert batch == [told] * 2, "all that share a batch"
    assert sorted(joined) == ["drawn", told]
    assert same(after, later)


@pytest.mark.parametrize("name", ["static", "continuous"])
def test_a_death_ends_the_training_by_its_name_and_calls_stay_open(base: str, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    out.mkdir()
    begun = time.monotonic()
    ends = play(a_death, base, out)
    assert [code for code, _, _ in ends] == [0, -signal.SIGKILL], ends[0][2][-3000:]
    facts = json.loads((out / "facts.json").read_text())
    assert "process 1 of this training no longer answers. `workbench resume`" in facts["error"]
    assert facts["calls"] == ["CancelledError"], "a call whose outcome is unknown is no failure of the workflow"
    assert time.monotonic() - begun < 200


def begin(folder: Path, *command: str, dies: int = 10**9) -> list[Any]:
    """A run of the command line on two processes, of which the second dies as it begins to draw so many rows."""
    where = ["--db", str(folder / "run.db"), "--out", str(folder / "optimized.yaml"), "--json"]
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); from tests.plugins.training.test_ranks import dying; "
        f"dying({dies}); from workbench.cli import main; main({[*command, *where]!r})"
    )
    return start_two("-c", code)


def dying(rows: int) -> None:
    torch.set_num_threads(1)
    begin, seen = Generator._begin, list[Row]()

    def begun(self: Generator, found: list[Row]) -> Any:
        seen.extend(found)
        if os.environ["RANK"] == "1" and len(seen) >= rows:
            os.kill(os.getpid(), signal.SIGKILL)
        return begin(self, found)

    Generator._begin = begun  # type: ignore[method-assign]


COMMON: dict[str, Any] = {
    "nodes": {"sort": {"predict": "text -> label: Literal['billing', 'technical']", "decoding": {"max_tokens": 6}}},
    "rows": (8, 3, 6),
}
DRAWS = {"device": "cpu", "guards": ["empty", "repeated"], "rewards": [{"kind": "length", "tokens": 8}]}


def candidates_of(folder: Path) -> list[Path]:
    return sorted((folder / "run-weights").glob("[0-9a-f]" * 16), key=lambda path: path.stat().st_mtime)


def test_a_run_whose_second_process_is_killed_says_so_and_resumes_to_the_same_weights(tmp_path: Path) -> None:
    schedule = {"steps": 3, "tasks": 2, "rollouts": 4, "evaluate_every": 2, "save_every": 1}
    common: dict[str, Any] = {
        **COMMON,
        "lm": f"hf:{save(tmp_path / 'base', 0, positions=512)}",
        "optimizers": [{"grpo": {**DRAWS, "schedule": schedule, "learning": {"rate": 1e-3}}}],
    }
    whole, killed = (str(write(tmp_path / name, **common)) for name in ("whole", "killed"))
    ends = [end(job) for job in begin(tmp_path / "whole", "optimize", whole)]
    assert [code for code, _, _ in ends] == [0, 0], ends[0][2][-3000:]
    # Each process draws 4 rows of a step: this is within the third.
    ends = [end(job) for job in begin(tmp_path / "killed", "optimize", killed, dies=9)]
    assert ends[0][0] == 1 and ends[1][0] == -signal.SIGKILL, ends[0][2][-3000:]
    report = json.loads(ends[0][1].strip().splitlines()[-1])
    assert report["status"] == "failed" and "process 1 of this training no longer answers" in report["error"]
    ends = [end(job) for job in begin(tmp_path / "killed", "resume", "last")]
    assert [code for code, _, _ in ends] == [0, 0], ends[0][2][-3000:]
    first, second = ({path.name for path in candidates_of(tmp_path / name)} for name in ("whole", "killed"))
    assert first == second and len(first) == 2


def test_sft_learns_and_draws_on_both_what_it_does_on_one(tmp_path: Path) -> None:
    sft = {
        **DRAWS,
        "threshold": 0.0,
        "tasks": 4,
        "rollouts": 4,
        "rounds": 2,
        "epochs": 1,
        "batch": 2,
        "learning": {"rate": 1e-3},
    }
    base = save(tmp_path / "base", 0, positions=512)
    common: dict[str, Any] = {**COMMON, "lm": f"hf:{base}", "optimizers": [{"sft": sft}]}
    file = str(write(tmp_path / "two", **common))
    ends = [end(job) for job in begin(tmp_path / "two", "optimize", file)]
    assert [code for code, _, _ in ends] == [0, 0], ends[0][2][-3000:]
    one = run(tmp_path / "one", **common).as_dict()
    two = json.loads(ends[0][1].strip().splitlines()[-1])
    assert two["spent"]["calls"] == one["spent"]["calls"] and two["best"]["val"] == one["best"]["val"]
    ends = [end(job) for job in begin(tmp_path / "dead", "optimize", str(write(tmp_path / "dead", **common)), dies=9)]
    assert ends[1][0] == -signal.SIGKILL, "it draws 8 of 16 rollouts in each round"
    weights = [load_file(candidates_of(tmp_path / name)[-1] / "model.safetensors") for name in ("one", "two")]
    start = load_file(base / "model.safetensors")
    apart, moved = (sum(float((a[k] - b[k]).abs().sum()) for k in start) for a, b in (weights, (weights[0], start)))
    assert moved > 1.0 and apart < 0.01 * moved, (apart, moved)


# Learning


@pytest.mark.long
def test_the_bandit_is_learned_on_two_of_two_seeds(base: str, tmp_path: Path) -> None:
    facts, seen = facts_of(learned_on_two_seeds, base, tmp_path)
    assert all(late > 0.8 > 0.2 > early for early, late in facts["shares"]), facts
    assert seen[0]["rows"] == seen[1]["rows"] == 2 * 40 * 4 * 8 / 2
