"""Learning: what a step does to weights, what training does to a tiny model, and what a kill does not do."""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.forking import start_python  # noqa: E402
from tests.helpers.grpo_worlds import bandit, sevens, without_clock  # noqa: E402
from tests.helpers.tiny_lm import make_model, make_tokenizer, save  # noqa: E402

from workbench.errors import LMError, StoreError  # noqa: E402
from workbench.lm import Request  # noqa: E402
from workbench.study import Result  # noqa: E402
from workbench.task import Example  # noqa: E402
from workbench.workflow import Trace  # noqa: E402
from workbench_engine.generation import Generator  # noqa: E402
from workbench_training.learner import Learner  # noqa: E402
from workbench_training.model.policy import Policy, last_checkpoint, write_checkpoint  # noqa: E402
from workbench_training.presets import make_objective  # noqa: E402
from workbench_training.rewards import Rollout  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate  # noqa: E402
from workbench_training.serving import policy_lm as serve  # noqa: E402
from workbench_training.settings import Learning, Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model") / "base", 1))


def some_rows(n: int = 8, seed: int = 0, version: int = 0) -> list[Row]:
    rng = random.Random(seed)
    made = []
    for i in range(n):
        prompt = tuple(rng.randrange(5, 40) for _ in range(rng.randrange(2, 9)))
        answer = tuple(rng.randrange(5, 40) for _ in range(rng.randrange(1, 9)))
        mask = tuple(int(rng.random() < 0.8 or j == 0) for j in range(len(answer)))
        drawn = tuple(-(3.6 + 0.2 * (j % 5)) * m for j, m in enumerate(mask))  # the tiny model says about -4
        made.append(Row(prompt, answer, mask, drawn, float(i % 2), str(i // 4), i % 4, version=version))
    return made


ADVANTAGES = [1.0, -1.0, 0.5, -0.5, 2.0, 0.0, -1.0, 1.0]


def learner(
    base: str,
    algorithm: str = "dapo",
    lora: Lora | None = None,
    changes: dict[str, Any] | None = None,
    shared: bool = False,
    **learning: Any,
) -> Learner:
    settings = Learning.model_validate({"rate": 1e-2, **learning})
    made = Policy(base, device="cpu", lora=lora, seed=0, checkpointing=settings.checkpointing)
    return Learner(made, make_objective(algorithm, changes), settings, shared=shared)


def moved(a: Learner, b: Learner) -> float:
    return max(
        float((p - q).abs().max())
        for p, q in zip(a.policy.snapshot().values(), b.policy.snapshot().values(), strict=True)
    )


# A step


@pytest.mark.parametrize("algorithm", ["dapo", "grpo", "gspo", "dr_grpo", "reinforce++", "rloo"])
def test_micro_batches_give_the_same_weights(base: str, algorithm: str) -> None:
    # SGD in place of AdamW, whose first step is the gradient's sign: it would make noise of rounding large.
    made = [learner(base, algorithm, micro_tokens=size) for size in (10_000, 24)]
    for one in made:
        one.optimizer = torch.optim.SGD(list(one.policy.trained.values()), lr=0.1)
        one.rate = 0.1
        one.step(some_rows(), ADVANTAGES, 0)
    assert moved(*made) < 1e-6
    assert moved(made[0], learner(base)) > 1e-4


def test_rows_that_teach_nothing_are_counted_but_not_computed(base: str) -> None:
    """Left out of the forward pass, they still weigh in the mean over tokens."""
    made = [learner(base), learner(base, changes={"beta": 1e-12})]  # with a reference, every row is computed
    for one in made:
        one.optimizer = torch.optim.SGD(list(one.policy.trained.values()), lr=0.1)
        one.rate = 0.1
        one.step(some_rows(), [1.0, 0, 0, 0, 0, 0, 0, -1.0], 0)
    assert moved(made[0], learner(base)) > 0 and moved(*made) < 1e-6


def test_a_step_that_is_not_finite_changes_nothing_and_is_counted(base: str) -> None:
    made = learner(base)
    figures = made.step(some_rows(), [math.inf, *ADVANTAGES[1:]], 0)
    assert made.skipped == 1 and moved(made, learner(base)) == 0.0 and "grad_norm" not in figures
    assert all(p.grad is None for p in made.policy.trained.values())
    made.step(some_rows(), ADVANTAGES, 0)
    assert made.skipped == 1 and moved(made, learner(base)) > 0.0


def test_stale_rows_are_weighed_by_the_log_probabilities_of_their_own_time(base: str) -> None:
    """An old success whose tokens were drawn at -9 each, and are far likelier now, is clipped: nothing is learned."""
    fresh, stale = (learner(base, "grpo", changes={"correction": False}) for _ in range(2))
    rows = [Row((5, 6), (7, 8), (1, 1), (-9.0, -9.0), 1.0, "t", version=0)]
    fresh.step(rows, [1.0], 0)
    stale.step(rows, [1.0], 1)
    assert moved(fresh, learner(base)) > 0 and moved(stale, learner(base)) == 0.0


def test_the_reference_starts_as_the_policy_and_returns_to_it(base: str) -> None:
    made = learner(base, "grpo", changes={"beta": 0.1})
    assert made.step(some_rows(), ADVANTAGES, 0)["kl"] == pytest.approx(0.0, abs=1e-6)
    before = made.policy.digest()
    assert made.step(some_rows(), ADVANTAGES, 1)["kl"] > 1e-4
    assert made.policy.digest() != before
    made.reset_reference()
    assert made.step(some_rows(), ADVANTAGES, 2)["kl"] == pytest.approx(0.0, abs=1e-6)


def test_divergences_of_rloo_are_compared_within_their_groups(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing else to compare they sum to nothing."""
    from workbench_training import learner as module

    seen: list[Any] = []
    real = module.compute_token_advantages
    monkeypatch.setattr(module, "compute_token_advantages", lambda *args: seen.append(real(*args)) or seen[-1])
    made, rows = learner(base, "rloo"), some_rows()
    made.reference = {name: 1.1 * p for name, p in made.policy.snapshot().items()}
    made.step(rows, [0.0] * 8, 0)
    each = seen[0][:, 0]  # the first token is never masked
    assert each[:4].sum().abs() < 1e-5 and each[4:].sum().abs() < 1e-5 and each.abs().max() > 1e-3


def test_several_updates_use_the_log_probabilities_from_before_the_first(base: str) -> None:
    made = learner(base, "grpo", epochs=3, minibatches=2)
    figures, once = (one.step(some_rows(), [1.0, -1.0] * 4, 0) for one in (made, learner(base, "grpo")))
    assert figures["clipped"] > 0  # by the second epoch some ratios have left the band
    assert figures["off_policy_ratio_max"] == pytest.approx(once["off_policy_ratio_max"], rel=1e-4)


def test_pairs_raise_the_better_answer(base: str) -> None:
    made = learner(base, "trpa")
    rows = some_rows()
    batch_before = made._log_probabilities(collate(rows), rows)
    for version in range(8):
        made.step(rows, [r.reward or 0.0 for r in rows], version)
    gained = (made._log_probabilities(collate(rows), rows) - batch_before).sum(-1)
    better = [float(gained[i]) for i, r in enumerate(rows) if r.reward == 1.0]
    worse = [float(gained[i]) for i, r in enumerate(rows) if r.reward == 0.0]
    assert sum(better) / len(better) > sum(worse) / len(worse) + 0.1


def test_an_adapter_leaves_the_rest_alone_and_is_merged_when_saved(base: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    made = learner(base, lora=Lora(rank=2))
    assert all("lora" in name for name in made.policy.trained)
    untouched = {n: p.clone() for n, p in made.policy.model.named_parameters() if "lora" not in n}
    for version in range(3):
        made.step(some_rows(), ADVANTAGES, version)
    assert all(torch.equal(p, untouched[n]) for n, p in made.policy.model.named_parameters() if n in untouched)
    rows = some_rows()
    mine = made._log_probabilities(collate(rows), rows)
    folder = made.policy.save(tmp_path)
    again = Policy(str(folder), device="cpu")
    merged = Learner(again, made.objective, made.learning)._log_probabilities(collate(rows), rows)
    assert (mine - merged).abs().max() < 1e-4
    plain = learner(base)._log_probabilities(collate(rows), rows)
    assert (mine - plain).abs().max() > 1e-3
    assert sorted(p.name for p in (folder / "adapter").glob("*.safetensors")) == ["adapter_model.safetensors"]
    assert not list(folder.rglob("*.bin")) and not list(folder.rglob("*.pt"))


def test_two_processes_give_the_gradient_of_one(base: str, tmp_path: Path) -> None:
    code = f"""
import sys
import torch
import torch.distributed as dist
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.plugins.training.test_learner import ADVANTAGES, learner, some_rows
rank, base, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{{out}}/meet", rank=rank, world_size=2)
made = learner(base, shared=True)
made.optimizer = torch.optim.SGD(list(made.policy.trained.values()), lr=0.1)
made.rate = 0.1
made.step(some_rows(), ADVANTAGES, 0)
from safetensors.torch import save_file
save_file(made.policy.snapshot(), f"{{out}}/{{rank}}.safetensors")
"""
    jobs = [start_python(code, str(rank), base, str(tmp_path)) for rank in (0, 1)]
    assert [job.wait(timeout=200) for job in jobs] == [0, 0]
    from safetensors.torch import load_file

    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    alone = learner(base)
    alone.optimizer = torch.optim.SGD(list(alone.policy.trained.values()), lr=0.1)
    alone.rate = 0.1
    alone.step(some_rows(), ADVANTAGES, 0)
    for name, p in alone.policy.snapshot().items():
        assert torch.equal(first[name], second[name]) and (first[name] - p).abs().max() < 1e-6, name


# Checkpoints


def test_a_checkpoint_holds_all_that_the_next_step_depends_on(base: str, tmp_path: Path) -> None:
    made = learner(base, "grpo", changes={"beta": 0.1})
    for version in range(2):
        made.step(some_rows(seed=version), ADVANTAGES, version)
    write_checkpoint(tmp_path, 2, made.tensors(), {"state": {}})
    found = last_checkpoint(tmp_path)
    assert found is not None and found[0] == 2
    again = learner(base, "grpo", changes={"beta": 0.1})
    again.load(found[1])
    for one in (made, again):
        one.step(some_rows(seed=9), ADVANTAGES, 2)
    assert moved(made, again) == 0.0
    forgetful = learner(base, "grpo", changes={"beta": 0.1})
    forgetful.policy.restore(found[1]["weights"])
    forgetful.step(some_rows(seed=9), ADVANTAGES, 2)
    assert moved(made, forgetful) > 0.0  # without the optimizer's memory it would not


def test_checkpoints_are_whole_or_not_there_and_only_two_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".step-000003").mkdir()  # what a kill while writing leaves
    (tmp_path / ".step-000003" / "weights.safetensors").write_bytes(b"half")
    assert last_checkpoint(tmp_path) is None
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, {"weights": {"a": torch.ones(2) * step}}, {"state": step})
    assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-000002", "step-000003"]
    found = last_checkpoint(tmp_path)
    assert found is not None and found[1]["weights"]["a"].tolist() == [3.0, 3.0]


# Drawing


def test_a_policy_answers_at_its_own_version_alone() -> None:
    model, tokenizer = make_model(1), make_tokenizer()
    engine = serve.LIVE["p"] = serve.LocalEngine(Generator(model.eval(), tokenizer), 3)
    request = Request(({"role": "user", "content": "abc"},), 1.0, 6)

    async def ask(name: str) -> Any:
        return await serve.policy(name, type("S", (), {"concurrency": None})()).complete(request)

    async def schedule() -> None:
        first = await ask("p@3")
        assert first.token_ids and len(first.logprobs) == len(first.token_ids) and first.prompt_ids
        for name in ("p@2", "p@4", "q@3"):
            with pytest.raises(LMError, match="gone|not being trained"):
                await ask(name)
        engine.at(4)
        again = await ask("p@4")
        assert again.token_ids != first.token_ids  # the same weights, but a fresh draw
        await engine.aclose()

    try:
        asyncio.run(schedule())
    finally:
        del serve.LIVE["p"]


def test_a_conversation_goes_on_from_the_very_tokens_that_were_drawn() -> None:
    """A tokenizer with merges, and an answer that it would not write with the tokens that were drawn."""
    from tests.helpers.tiny_lm import TEMPLATE
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    from workbench.lm import Response

    words = {"<pad>": 0, "<end>": 1, "<unk>": 2, "<u>": 3, "<a>": 4, "a": 5, "b": 6, "ab": 7}
    made = Tokenizer(models.BPE(words, [("a", "b")], unk_token="<unk>"))
    made.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<end>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<u>", "<a>"],
    )
    tokenizer.chat_template = TEMPLATE
    encode = Generator(make_model(), tokenizer).encode
    talk = serve.Conversations(tokenizer, {1}, encode)
    ask = {"role": "user", "content": "a"}
    first = Request((ask,))
    prompt = talk.prompt_ids(first)
    assert prompt == [3, 5, 1, 4]
    talk.remember(first, Response("ab", prompt_ids=tuple(prompt), token_ids=(5, 6, 1)))
    said = {"role": "assistant", "content": "ab"}
    later = talk.prompt_ids(Request((ask, said, {"role": "user", "content": "b"})))
    assert later == [3, 5, 1, 4, 5, 6, 1, 3, 6, 1, 4]  # 5 6 as drawn, not 7
    assert encode([ask, said, {"role": "user", "content": "b"}]) == [3, 5, 1, 4, 7, 1, 3, 6, 1, 4]
    # Another draw of the same question, a rewritten history and a cut answer are tokenized as they stand.
    assert talk.prompt_ids(Request((ask, said, ask), replica=1))[4] == 7
    assert talk.prompt_ids(Request(({"role": "user", "content": "b"}, said, ask)))[4] == 7
    talk.remember(Request((ask,), replica=2), Response("ab", prompt_ids=tuple(prompt), token_ids=(5, 6)))
    assert talk.prompt_ids(Request((ask, said, ask), replica=2))[4] == 7


# Training


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_it_learns_to_emit_a_digit(tmp_path: Path, seed: int) -> None:
    """Share of 7 in eight characters: chance at first, at least 0.9 over the last four of 40 steps."""
    log = bandit(tmp_path, sevens, seed=seed).history
    assert log[0]["reward"] < 0.1
    assert sum(f["reward"] for f in log[-4:]) / 4 >= 0.9


def test_without_reward_nothing_is_learned(tmp_path: Path) -> None:
    made = bandit(tmp_path, lambda text: 0.0, steps=10)
    assert all(f["silent"] == 1.0 and "loss" not in f for f in made.history)
    drawn = [sevens(text) for step, text in made.source.drawn if step >= 5]  # type: ignore[attr-defined]
    assert sum(drawn) / len(drawn) < 0.1


def test_killed_and_resumed_from_a_checkpoint_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "schedule": {"save_every": 3, "replay": 2, "evaluate_every": 4},
        "constants": {"trainer.RESET_PATIENCE": 1, "trainer.RESET_AFTER": 3},
        "steps": 10,
    }
    objective = make_objective("grpo", {"beta": 0.01, "resets": True})
    whole = bandit(tmp_path, sevens, objective=objective, checkpoints="whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        bandit(tmp_path, sevens, objective=objective, crash=8, **settings)
    assert sorted(p.name for p in (tmp_path / "schedule").glob("step-*")) == ["step-000003", "step-000006"]
    again = bandit(tmp_path, sevens, objective=objective, **settings)
    assert [f["step"] for f in again.history] == [6.0, 7.0, 8.0, 9.0]  # nothing before the checkpoint was computed
    assert again.learners[""].policy.digest() == whole.learners[""].policy.digest()
    assert without_clock(again.history) == without_clock(whole.history[6:])
    assert again.state == whole.state
    assert any("reference is reset" in text for text in whole.told)  # type: ignore[attr-defined]


def test_a_run_whose_weights_are_gone_says_so(tmp_path: Path) -> None:
    import shutil

    schedule = {"save_every": 2, "evaluate_every": 2}
    bandit(tmp_path, sevens, steps=2, schedule=schedule)
    shutil.rmtree(tmp_path / "weights")
    with pytest.raises(StoreError, match="are gone"):
        bandit(tmp_path, sevens, steps=4, schedule=schedule)


def test_a_stalled_policy_becomes_its_own_reference(tmp_path: Path) -> None:
    made = bandit(
        tmp_path,
        lambda text: float(len(set(text))),
        steps=8,
        objective=make_objective("prorl"),
        schedule={"evaluate_every": 1},
        constants={"trainer.RESET_PATIENCE": 2, "trainer.RESET_AFTER": 3},
    )
    resets = [text for text in made.told if "reference is reset" in text]  # type: ignore[attr-defined]
    # Every candidate scores 0.0: the first is the best, and two in a row that are no better are a stall.
    assert len(resets) == 2 and made.state.last_reset == 6


def test_dynamic_sampling_replaces_groups_without_differences(tmp_path: Path) -> None:

    def reward(text: str) -> float:
        return 0.0

    made = bandit(tmp_path, reward, steps=4, tasks=2, schedule={"dynamic_sampling": 1})
    counts = [sum(s == step for s, _ in made.source.drawn) for step in range(4)]  # type: ignore[attr-defined]
    assert counts == [32, 32, 32, 32]  # two tasks, and two more in their place, eight rollouts each
    plain = bandit(tmp_path, reward, steps=1, tasks=2, checkpoints="other")
    assert len(plain.source.drawn) == 16  # type: ignore[attr-defined]


def test_alarms_are_told_and_stop_or_roll_back(tmp_path: Path) -> None:
    band: dict[str, Any] = {"schedule": {"on_alarm": "stop"}, "constants": {"alarms.ENTROPY": (0.0, 0.1)}}
    stopped = bandit(tmp_path, sevens, steps=5, **band)
    assert len(stopped.history) == 1 and any("alarm at step 1: entropy" in t for t in stopped.told)  # type: ignore[attr-defined]
    resumed = bandit(tmp_path, sevens, steps=5, **band)
    assert resumed.history == []  # what an alarm ended stays ended
    back = bandit(
        tmp_path,
        sevens,
        steps=4,
        checkpoints="back",
        schedule={"on_alarm": "rollback", "evaluate_every": 2},
        constants={"alarms.ENTROPY": (0.0, 0.1)},
    )
    assert sum("back to the best" in t for t in back.told) == 2  # type: ignore[attr-defined]


def test_the_budget_ends_training_with_a_last_candidate(tmp_path: Path) -> None:
    made = bandit(tmp_path, sevens, steps=7, schedule={"evaluate_every": 3}, affords=5)
    assert len(made.history) == 5
    assert [step for step, _ in made.source.submissions] == [3, 5]  # type: ignore[attr-defined]


def test_replay_puts_an_old_success_into_a_failing_group(tmp_path: Path) -> None:
    """Successes are scarce: with replay their rows come back, at the version that drew them."""
    made = bandit(tmp_path, lambda text: float("7" in text), steps=6, schedule={"replay": 4})
    stored = [row for rows in made.state.replay.values() for kept in rows for row in kept]
    assert stored and all(row["reward"] == 1.0 and "7" in row["text"] for row in stored)
    assert all(len(rows) <= 4 for rows in made.state.replay.values())
    task = next(iter(made.state.replay))
    example = Example(task, {"text": "a"})
    failing = [Rollout(example, Result(example, 0.0, trace=Trace(task)), k, 0.0) for k in range(3)]
    rows = made._rows(failing, 99, 99)
    assert len(rows) == 1 and rows[0].reward == 1.0 and rows[0].version < 99 and rows[0].rollout == 0
