"""Odds ratios (ORPO, against TRL) and masked thinking: the two stages of PRefLexOR."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_runs import learned_rows, run  # noqa: E402
from tests.helpers.tiny_lm import make_tokenizer, save  # noqa: E402

from workbench.study import Result  # noqa: E402
from workbench.task import Example  # noqa: E402
from workbench_training.dpo import DPO  # noqa: E402
from workbench_training.learner import Learner  # noqa: E402
from workbench_training.loss import Pairs  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.papers.orpo import log_odds, odds_ratio_loss  # noqa: E402
from workbench_training.papers.preflexor import Thinking, find_thoughts, mask_pairs, mask_thoughts  # noqa: E402
from workbench_training.rewards import Rollout  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate  # noqa: E402
from workbench_training.settings import Learning  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENIZER = make_tokenizer()


def row(text: str, reward: float = 1.0, task: str = "t", prompt: str = "<u>q<end><a>", mask: str = "") -> Row:
    """mask: a character for each token, `-` where it was not drawn."""
    ids = tuple(TOKENIZER(text)["input_ids"])
    drawn = tuple(int(c != "-") for c in mask.ljust(len(ids), "x"))
    return Row(tuple(TOKENIZER(prompt)["input_ids"]), ids, drawn, (0.0,) * len(ids), reward, task, agent="n")


# Odds ratios


def pairs(logp: Any, mask: Any, rewards: list[float], count: int = 0) -> Pairs:
    """Two rows a group."""
    groups = [k // 2 for k in range(len(rewards))]
    return Pairs(logp, mask, logp.detach(), None, rewards, groups, count, float(mask.sum()))


def test_odds_by_hand() -> None:
    """One pair: probabilities per token of 0.5 and 0.25, so odds of 1 and 1/3."""
    logp = torch.log(torch.tensor([[0.5, 0.5, 9.0], [0.25, 0.25, 0.25]])).requires_grad_()
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    loss, figures = odds_ratio_loss(pairs(logp, mask, [1.0, 0.0]), 0.5)
    assert float(loss.detach()) == pytest.approx(-math.log(0.5) + 0.5 * math.log(1 + 1 / 3), abs=1e-6)
    loss.backward()
    assert logp.grad is not None and logp.grad[0, 2] == 0 and (logp.grad[0, :2] < 0).all() and (logp.grad[1] > 0).all()
    assert figures == {"pairs": 1.0}
    half, _ = odds_ratio_loss(pairs(logp, mask, [1.0, 0.0], count=2), 0.5)
    assert float(half.detach()) == pytest.approx(float(loss.detach()) / 2)
    alone, none = odds_ratio_loss(pairs(logp, mask, [1.0, math.nan]), 0.5)
    assert float(alone.detach()) == 0.0 and none == {"pairs": 0.0}
    assert float(log_odds(torch.tensor(math.log(0.8)))) == pytest.approx(math.log(4.0), rel=1e-5)
    assert torch.isfinite(log_odds(torch.zeros(1))).all()  # an answer that is certain


def test_odds_and_their_gradient_equal_trls() -> None:
    orpo = pytest.importorskip("trl.experimental.orpo.orpo_trainer")
    torch.manual_seed(0)
    for weight in (0.1, 1.0):
        mine = (-3 * torch.rand(8, 5)).requires_grad_()
        theirs = mine.detach().clone().requires_grad_()
        mask = (torch.arange(5) < torch.tensor([[5], [2], [3], [5], [1], [4], [5], [5]])).float()
        found, _ = odds_ratio_loss(pairs(mine, mask, [1.0, 0.0] * 4), weight)
        mean = (theirs * mask).sum(-1) / mask.sum(-1)
        self = SimpleNamespace(beta=weight, accelerator=SimpleNamespace(device="cpu"))
        losses = orpo.ORPOTrainer.odds_ratio_loss(self, mean[0::2], mean[1::2])[0]
        wanted = -mean[0::2].mean() - losses.mean()
        assert float(found.detach()) == pytest.approx(float(wanted.detach()), abs=1e-6)
        found.backward()
        wanted.backward()
        assert mine.grad is not None and theirs.grad is not None
        assert (mine.grad - theirs.grad).abs().max() < 1e-6


@pytest.mark.parametrize("weight", [2.0, 1e-6], ids=["odds", "control"])
def test_the_worse_answer_becomes_less_likely_without_a_reference(weight: float, tmp_path: Path) -> None:
    """Planted: two answers that share all but their last letter. Likelihood alone (the control) raises what they share,
    and with it the worse answer; the odds push it down."""
    dpo = DPO.model_validate({"loss": "odds_ratio", "beta": weight})
    policy = Policy(str(save(tmp_path / "base", 0)), device="cpu", seed=0)
    learner = Learner(policy, dpo.objective(), Learning.model_validate({"rate": 3e-3}))
    assert learner.reference is None and not dpo.keeps_reference
    rows = [row("the answer is a"), row("the answer is b", 0.0)]

    def likelihood() -> list[float]:
        batch = collate(rows)
        with torch.no_grad():
            return (policy.log_probabilities(batch)[0] * batch.mask).sum(-1).tolist()

    before = likelihood()
    for _ in range(60):
        figures = learner.step(rows, [1.0, 1.0], 0)
    after = likelihood()
    assert figures["pairs"] == 1.0 and after[0] > -1.0
    assert after[1] < -15.0 if weight > 1 else before[1] + 40.0 < -12.0 < after[1]


# Thinking

MARKS: dict[str, Any] = {"start": "[", "end": "]"}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("ab[cd]ef[g]h", "abefh"),
        ("abc", "abc"),
        ("a]b[c", "a]b[c"),  # markers without their other half
        ("[a[b]c", "[ac"),  # an end belongs to the last start before it
    ],
)
def test_thoughts_are_left_out(text: str, left: str) -> None:
    thinking = Thinking.model_validate(MARKS)
    masked = mask_thoughts(row(text), thinking, TOKENIZER)
    kept = [t for t, m in zip(masked.token_ids, masked.mask, strict=True) if m]
    assert "".join(TOKENIZER.decode([t]) for t in kept) == left
    assert masked.token_ids == row(text).token_ids  # they are still seen


def test_what_others_said_is_no_thought() -> None:
    """A tool's result with a marker in it; and markers of several tokens, one of which also ends the answer's word."""
    whole = row("a[b]c", mask="x-x-x")
    assert mask_thoughts(whole, Thinking.model_validate(MARKS), TOKENIZER).mask == (1, 0, 1, 0, 1)
    assert find_thoughts("x<|thinking|>y<|/thinking|>z", Thinking()) == [(1, 27)]


def test_a_pair_without_an_answer_is_left_out() -> None:
    thinking = Thinking.model_validate(MARKS)
    pairs = [[row("[a]b"), row("[c]", 0.0)], [row("[a]b"), row("[c]d", 0.0)]]
    assert [len(rows) for rows in mask_pairs(pairs, thinking, TOKENIZER)] == [2]


class Source:
    """Two rollouts of a row, that were drawn already."""

    def __init__(self, *texts: str):
        example = Example("t", {"q": "q"})
        self.drawn = [Rollout(example, Result(example, float(i == 0)), i, float(i == 0)) for i in range(len(texts))]
        self.texts = texts

    async def rollouts(self, tasks: Any, schedule: Any, step: int) -> list[list[Rollout]]:
        return [self.drawn]

    def rows(self, rollout: Rollout, step: int) -> list[Row]:
        return [row(self.texts[rollout.replica], rollout.reward or 0.0)]


@pytest.mark.parametrize("thinking", [{"thinking": MARKS}, {}], ids=["masked", "control"])
def test_what_was_thought_is_not_what_is_preferred(thinking: dict[str, Any], tmp_path: Path) -> None:
    dpo = DPO.model_validate({"rollouts": 2, **thinking})
    policy = Policy(str(save(tmp_path / "base", 0)), device="cpu", seed=0)
    learner = Learner(policy, dpo.objective(), Learning.model_validate({"rate": 3e-3}))
    study: Any = SimpleNamespace(log=lambda *args, **more: None)
    source: Any = Source("[good]", "[bad]")
    (rows,) = asyncio.run(dpo.chosen(study, policy, source, [], None, 0)) or [[]]  # type: ignore[arg-type]
    assert bool(rows) is not bool(thinking)  # nothing is left to compare
    source = Source("[good] x", "[bad] x")
    (rows,) = asyncio.run(dpo.chosen(study, policy, source, [], None, 0))  # type: ignore[arg-type]
    masks = {tuple(r.mask) for r in rows}
    assert ((0,) * 6 + (1, 1) in masks) is bool(thinking)

    def margin() -> float:
        """How much likelier the thought of the better answer is than the other one, in nats."""
        batch = collate([row("[good]"), row("[bad]")])
        with torch.no_grad():
            good, bad = (policy.log_probabilities(batch)[0] * batch.mask)[:, 1:4].sum(-1).tolist()
        return good - bad

    start = margin()
    for _ in range(10):
        learner.step(rows, [1.0] * 2, 0)
    moved = margin() - start
    assert moved < 4.0 if thinking else moved > 8.0


def test_the_file_chooses_loss_and_masks(tmp_path: Path) -> None:
    """From YAML to the learner's rows: the two stages after each other. here nano "thinks" from an h to an i."""
    stages = [
        {"dpo": {"tasks": 8, "rollouts": 4, "epochs": 1, "loss": "odds_ratio", "learning": {"rate": 1e-5}}},
        {"dpo": {"tasks": 8, "rollouts": 4, "epochs": 1, "thinking": {"start": "h", "end": "i"}}},
    ]
    with pytest.MonkeyPatch.context() as patch:
        seen = learned_rows(patch)
        forms: list[str] = []
        real = Learner.__init__

        def watched(self: Learner, policy: Any, objective: Any, *args: Any, **more: Any) -> None:
            forms.append(objective.pair_loss)
            real(self, policy, objective, *args, **more)

        patch.setattr(Learner, "__init__", watched)
        run(tmp_path, optimizers=stages, nodes={"sort": {"predict": "text -> label", "decoding": {"max_tokens": 8}}})
    assert forms == ["odds_ratio", "dpo"] and seen
    assert any(0 in r.mask for r in seen) and any(0 not in r.mask for r in seen)
