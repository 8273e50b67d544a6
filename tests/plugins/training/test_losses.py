"""The losses of grpo: values and gradients against TRL's and by hand, and what must not matter to them."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from workbench_training.objective import Objective
from workbench_training.presets import PRESETS, make_objective
from workbench_training.rollouts.token_rows import Row

torch = pytest.importorskip("torch")

from workbench_training.loss import Pairs, divergence, find_pairs, policy_loss, preference_loss  # noqa: E402
from workbench_training.papers.trpa import trust_region_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and torch warn of what they will change some day


# Loss and gradient against TRL


def tensors(seed: int, rows: int = 6, width: int = 9) -> dict[str, Any]:
    """Log-probabilities far enough apart that every clip acts somewhere, and masks with holes and ragged ends."""
    generator = torch.Generator().manual_seed(seed)
    logp = -torch.rand(rows, width, generator=generator) * 3
    mask = (torch.rand(rows, width, generator=generator) < 0.8).float()
    lengths = torch.randint(1, width + 1, (rows,), generator=generator)
    mask *= (torch.arange(width) < lengths[:, None]).float()
    mask[:, 0] = 1
    return {
        "logp": logp,
        "mask": mask,
        "old": logp + torch.randn(rows, width, generator=generator) * 0.5,
        "ref": logp + torch.randn(rows, width, generator=generator) * 0.5,
        "advantage": torch.randn(rows, generator=generator),
    }


@pytest.fixture(scope="module")
def trl_trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("trl")
    pytest.importorskip("datasets")
    from datasets import Dataset
    from tests.helpers.tiny_lm import make_tokenizer, save
    from trl import GRPOConfig, GRPOTrainer

    folder = tmp_path_factory.mktemp("trl")
    config = GRPOConfig(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=9,
        use_cpu=True,
        bf16=False,
        report_to=[],
        beta=0.0,
        disable_tqdm=True,
    )
    made = GRPOTrainer(
        model=str(save(folder / "model")),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * 2}),
        processing_class=make_tokenizer(),
    )
    made.current_gradient_accumulation_steps = 1
    made.args.steps_per_generation = 1
    return made


def theirs(trainer: Any, data: dict[str, Any], loss_type: str, objective: Objective) -> tuple[Any, Any]:
    """TRL's loss, and its gradient with respect to every log-probability."""
    logp = data["logp"].clone().requires_grad_()
    trainer.loss_type, trainer.importance_sampling_level = loss_type, objective.ratio
    trainer.beta, trainer.epsilon_low, trainer.epsilon_high = objective.beta, objective.clip_low, objective.clip_high
    trainer.args.delta, trainer.args.use_bias_correction_kl = None, False
    trainer._get_per_token_logps_and_entropies = lambda *a, **k: (logp, torch.zeros_like(logp), None)
    rows, width = logp.shape
    long = torch.ones(rows, width, dtype=torch.long)
    inputs = {
        "prompt_ids": long[:, :1],
        "prompt_mask": long[:, :1],
        "completion_ids": long,
        "completion_mask": data["mask"],
        "advantages": data["advantage"],
        "old_per_token_logps": data["old"],
        "ref_per_token_logps": data["ref"],
        "num_items_in_batch": data["mask"].sum(),
    }
    trainer.model.train()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.detach(), logp.grad


def ours(data: dict[str, Any], objective: Objective, **more: Any) -> tuple[Any, Any]:
    logp = data["logp"].clone().requires_grad_()
    loss, _ = policy_loss(logp, data["advantage"], data["mask"], objective, old=data["old"], ref=data["ref"], **more)
    loss.backward()
    return loss.detach(), logp.grad


LOSSES = {
    "grpo": {"aggregate": "sequence"},
    "dr_grpo": {"aggregate": "constant", "max_tokens": 9},
    "dapo": {"aggregate": "token"},
    "cispo": {"surrogate": "cispo", "aggregate": "token"},
}


@pytest.mark.parametrize("loss_type", LOSSES)
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_loss_and_gradient_equal_trls(trl_trainer: Any, loss_type: str, ratio: str) -> None:
    for beta, high, seed in itertools.product((0.0, 0.05), (0.2, 0.28, 5.0), range(3)):
        objective = Objective.model_validate({**LOSSES[loss_type], "ratio": ratio, "beta": beta, "clip_high": high})
        data = tensors(seed)
        value, gradient = ours(data, objective)
        expected, wanted = theirs(trl_trainer, data, loss_type, objective)
        where = f"{loss_type} {ratio} beta={beta} high={high} seed={seed}"
        assert abs(value - expected) <= 1e-6 * max(1.0, abs(float(expected))), where
        assert (gradient - wanted).abs().max() <= 1e-5, where
        assert wanted.abs().max() > 1e-3, f"{where}: nothing to compare"


def test_the_comparison_with_trl_can_fail(trl_trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A detached ratio has the right value and a wrong gradient; symmetric clips are not asymmetric ones."""
    from workbench_training import loss as module

    data, objective = tensors(0), Objective(beta=0.05)
    value, wanted = theirs(trl_trainer, data, "grpo", objective)
    real = module.compute_ratio
    with monkeypatch.context() as patch:
        patch.setattr(module, "compute_ratio", lambda *args: real(*args).detach())
        detached, gradient = ours(data, objective)
    assert abs(detached - value) < 1e-6 and (gradient - wanted).abs().max() > 1e-3
    assert (ours(data, objective)[1] - wanted).abs().max() < 1e-5
    data, objective = tensors(0), Objective()
    _, wanted = theirs(trl_trainer, data, "grpo", objective)
    assert (ours(data, Objective(clip_high=0.8))[1] - wanted).abs().max() > 1e-3
    assert (ours({**data, "old": data["logp"]}, objective)[1] - wanted).abs().max() > 1e-3


@pytest.mark.parametrize("shared", [False, True])
def test_gradient_of_the_weights_equals_trls(trl_trainer: Any, shared: bool) -> None:
    """Through the model: our forward on rows filled up on the right, TRL's on prompts filled up on the left. Where rows
    share a prompt, ours computes it once."""
    from tests.helpers.tiny_lm import make_model
    from trl import GRPOTrainer

    from workbench_training.model.logprobs import log_probabilities
    from workbench_training.rollouts.token_rows import collate

    rng = random.Random(3)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(rng.randrange(5, 40) for _ in range(n))

    rows = []
    for i, (prompt, answer) in enumerate([(3, 5), (6, 2), (4, 7)]):
        mask = tuple(int(j != 1) for j in range(answer))
        begin = rows[0].prompt_ids if shared and i == 2 else ids(prompt)
        rows.append(Row(begin, ids(answer), mask, (-1.0,) * answer, 1.0, "t", i))
    advantage, objective = torch.tensor([1.0, -0.5, 0.7]), make_objective("dapo")

    ours_model = make_model(4)
    batch = collate(rows)
    logp, _ = log_probabilities(ours_model, batch)
    policy_loss(logp, advantage, batch.mask, objective)[0].backward()

    their_model = trl_trainer.model  # TRL has put a head of its own into it
    their_model.load_state_dict(make_model(4).state_dict())
    their_model.zero_grad()
    width, longest = 6, 7
    prompts = torch.zeros(3, width, dtype=torch.long)
    answers = torch.zeros(3, longest, dtype=torch.long)
    tool_mask = torch.zeros(3, longest)
    for i, r in enumerate(rows):
        prompts[i, width - len(r.prompt_ids) :] = torch.tensor(r.prompt_ids)
        answers[i, : len(r.token_ids)] = torch.tensor(r.token_ids)
        tool_mask[i, : len(r.token_ids)] = torch.tensor(r.mask, dtype=torch.float)
    trl_trainer.loss_type, trl_trainer.importance_sampling_level = "dapo", "token"
    trl_trainer.beta, trl_trainer.epsilon_low, trl_trainer.epsilon_high = 0.0, 0.2, 0.28
    trl_trainer.args.delta = None
    trl_trainer._get_per_token_logps_and_entropies = GRPOTrainer._get_per_token_logps_and_entropies.__get__(trl_trainer)
    inputs = {
        "prompt_ids": prompts,
        "prompt_mask": (prompts > 0).long(),
        "completion_ids": answers,
        "completion_mask": (answers > 0).long(),
        "tool_mask": tool_mask,
        "advantages": advantage,
        "num_items_in_batch": tool_mask.sum(),
    }
    trl_trainer._compute_loss(their_model, inputs).backward()
    for (name, a), (_, b) in zip(ours_model.named_parameters(), their_model.named_parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        assert (a.grad - b.grad).abs().max() < 1e-5, name
        assert b.grad.abs().max() > 1e-6, name


# What must not matter to the loss


def whole_gradient(data: dict[str, Any], objective: Objective, parts: list[list[int]], pad: int = 0) -> Any:
    """The gradient of a step that is split into micro-batches."""
    total = torch.zeros_like(data["logp"])
    for part in parts:
        piece = {k: v[part] for k, v in data.items()}
        if pad:
            piece = {
                k: torch.nn.functional.pad(v, (0, pad), value=-77.0 if k != "mask" else 0.0) if v.dim() == 2 else v
                for k, v in piece.items()
            }
        _, gradient = ours(piece, objective, rows=6, tokens=float(data["mask"].sum()))
        assert not gradient[:, 9:].any()
        total[part] = gradient[:, :9]
    return total


#: Where a row needs no other.
ALONE = [a for a in PRESETS if PRESETS[a].objective.get("surrogate") != "pairs"]
SHAPES = [make_objective(a, {"beta": 0.05, "kl_place": "loss", "max_tokens": 9}) for a in ALONE]


@pytest.mark.parametrize("objective", SHAPES, ids=ALONE)
def test_split_order_and_padding_do_not_matter(objective: Objective) -> None:
    data = tensors(2)
    whole = whole_gradient(data, objective, [[0, 1, 2, 3, 4, 5]])
    for parts in ([[0], [1, 2], [3, 4, 5]], [[5, 0, 3], [4, 2, 1]], [[i] for i in range(6)]):
        assert (whole_gradient(data, objective, parts) - whole).abs().max() < 1e-6
    assert (whole_gradient(data, objective, [[0, 1, 2], [3, 4, 5]], pad=7) - whole).abs().max() < 1e-6


def test_a_mean_over_micro_batches_depends_on_the_split() -> None:
    """The negative control: the check above finds what it should find, where each part is divided by its own tokens."""
    data, objective = tensors(2), Objective(aggregate="token")
    _, whole = ours(data, objective)
    _, part = ours({name: values[[1, 2]] for name, values in data.items()}, objective)
    assert (part - whole[[1, 2]]).abs().max() > 1e-3


@pytest.mark.parametrize("objective", SHAPES, ids=ALONE)
def test_masked_tokens_get_exactly_no_gradient(objective: Objective) -> None:
    data = tensors(3)
    data["logp"] = torch.where(data["mask"] > 0, data["logp"], torch.tensor(-1e4))  # exp of it would overflow
    data["old"] = torch.where(data["mask"] > 0, data["old"], torch.tensor(-2e4))
    _, gradient = ours(data, objective)
    assert (gradient[data["mask"] == 0] == 0).all() and torch.isfinite(gradient).all()


def test_kl_forms_estimate_the_same_divergence() -> None:
    torch.manual_seed(0)
    p, q = torch.softmax(torch.randn(8), -1), torch.softmax(torch.randn(8) * 0.2, -1)
    q = 0.99 * p + 0.01 * q  # near p, where k2 holds
    truth = float((p * (p / q).log()).sum())
    for form in ("k1", "k2", "k3"):
        estimate = float((p * divergence(p.log(), q.log(), form)).sum())
        assert estimate == pytest.approx(truth, rel=0.05 if form == "k2" else 1e-2), form


# Pairs


def pairs(logp: Any, ref: Any, mask: Any, rewards: list[float]) -> Pairs:
    """All rows are of one group, and the whole step."""
    return Pairs(logp, mask, logp.detach(), ref, rewards, ["t"] * len(rewards), 0, float(mask.sum()))


def test_preferences_by_hand() -> None:
    logp = torch.tensor([[-1.0, -1.0], [-2.0, -4.0], [-1.0, -3.0]], requires_grad=True)
    ref = torch.tensor([[-1.5, -1.5], [-2.0, -2.0], [-1.0, -1.0]])
    mask = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    loss, figures = trust_region_loss(pairs(logp, ref, mask, [1.0, 0.0, 0.5]), 0.1)
    gained = [0.5, -1.0, 0.0]
    h = [2.5 * 0.1 * (gained[0] - gained[1]), 2.5 * 0.1 * (gained[0] - gained[2]), 0.1 * (gained[2] - gained[1])]
    assert float(loss) == pytest.approx(sum(math.log1p(math.exp(-x)) for x in h) / 3, abs=1e-6)
    assert figures == {"pairs": 3.0} and find_pairs([1.0, 0.0], ["t", "u"]) == []
    loss.backward()
    assert logp.grad is not None
    assert (logp.grad[0] < 0).all() and (logp.grad[1] > 0).all() and logp.grad[2, 1] == 0
    same, _ = trust_region_loss(pairs(logp, ref, mask, [1.0, 1.0, 1.0]), 0.1)
    assert float(same.detach()) == 0.0


def test_dpo_by_hand() -> None:
    """-log sigmoid of beta times the difference of summed log-ratios; likelihood: minus the mean log-probability."""
    from workbench_training.dpo import DPO
    from workbench_training.sft import SFT

    logp = torch.tensor([[-1.0, -1.0], [-2.0, -4.0]], requires_grad=True)
    ref = torch.tensor([[-1.5, -1.5], [-2.0, -2.0]])
    loss, _ = preference_loss(pairs(logp, ref, torch.ones(2, 2), [1.0, 0.0]), DPO(beta=0.2).objective().pair_beta)
    assert float(loss.detach()) == pytest.approx(math.log1p(math.exp(-0.2 * (1.0 + 2.0))), abs=1e-6)
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    value, _ = policy_loss(logp, torch.ones(2), mask, SFT().objective())
    assert float(value.detach()) == pytest.approx((1.0 + 1.0 + 2.0) / 3)
