"""RLOO and DPO against TRL's own trainers: advantages, losses and gradients, through models."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

from tests.helpers.tiny_lm import make_model, make_tokenizer, save  # noqa: E402
from tests.plugins.training.test_losses import ours, tensors  # noqa: E402

from workbench_training.advantages import compute_advantages, compute_token_advantages  # noqa: E402
from workbench_training.dpo import DPO  # noqa: E402
from workbench_training.loss import Pairs, policy_loss, preference_loss  # noqa: E402
from workbench_training.model import logprobs  # noqa: E402
from workbench_training.model.layer_checkpointing import LayerCheckpointing  # noqa: E402
from workbench_training.model.logprobs import log_probabilities  # noqa: E402
from workbench_training.presets import make_objective  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and torch warn of what they will change some day

PLAIN: dict[str, Any] = {"use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True}


@pytest.fixture(params=["kept", "recomputed"])
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The log-probabilities of rows under a model; activations of layers and logits are kept, or computed twice."""
    again = request.param == "recomputed"
    if again:
        monkeypatch.setattr(logprobs, "LOGITS", 3 * len(make_tokenizer()))

    def found(model: Any, batch: Any) -> Any:
        with LayerCheckpointing(model).enabled(again):
            return log_probabilities(model, batch)[0]

    return found


class Step:
    """What a step of TRL's RLOOTrainer computes, whose reference is not its policy, and whose last reward is
    missing."""

    def __init__(self, folder: Path):
        from trl import RLOOConfig, RLOOTrainer

        outer, self.rewards = self, dict[tuple[int, ...], float | None]()

        class Watched(RLOOTrainer):
            def _compute_loss(self, model: Any, inputs: Any) -> Any:
                loss = super()._compute_loss(model, inputs)
                outer.inputs, outer.loss = inputs, loss.detach()
                outer.gradient = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
                return loss

        def reward(completion_ids: list[list[int]], **more: Any) -> list[float | None]:
            found = [0.0, 1.0, 0.5, 2.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.25, 1.0, None]
            self.rewards.update(zip(map(tuple, completion_ids), found, strict=True))
            return found

        config = RLOOConfig(
            output_dir=str(folder / "out"),
            per_device_train_batch_size=12,
            num_generations=4,
            max_completion_length=5,
            max_steps=1,
            beta=0.05,
            **PLAIN,
        )
        self.trainer: Any = Watched(
            model=str(save(folder / "model", 4)),
            reward_funcs=reward,
            args=config,
            processing_class=make_tokenizer(),
            train_dataset=datasets.Dataset.from_dict({"prompt": ["ab", "c", "def"]}),
        )
        self.trainer.model.load_state_dict(make_model(5).state_dict())  # the reference keeps those of 4
        self.trainer.train()

    def rows(self) -> list[Row]:
        found, given = [], self.inputs
        for i in range(12):
            prompt = tuple(given["prompt_ids"][i][given["prompt_mask"][i].bool()].tolist())
            answer = tuple(given["completion_ids"][i][given["completion_mask"][i].bool()].tolist())
            n = len(answer)
            found.append(Row(prompt, answer, (1,) * n, (0.0,) * n, self.rewards[answer], str(prompt), i))
        return found


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Step:
    return Step(tmp_path_factory.mktemp("rloo"))


def test_advantages_loss_and_gradient_of_rloo_equal_those_of_a_step_of_trl(step: Step, computed: Any) -> None:
    """The divergence is taken off the reward before the baseline, and an answer that could not be scored gets
    nothing."""
    objective, rows, policy = make_objective("rloo"), step.rows(), make_model(5)
    batch, expected = collate(rows), step.inputs["advantages"]
    logp = computed(policy, batch)
    old, ref = logp.detach(), log_probabilities(make_model(4), batch)[0].detach()
    assert len(step.rewards) == 12 and ((old - ref) * batch.mask).sum(-1).abs().max() > 0.1
    values = torch.tensor(compute_advantages(rows, objective), dtype=torch.float)
    spread = compute_token_advantages(values, batch.mask, objective, old, ref, rows)
    assert (spread[:, 0] - expected).abs().max() < 1e-5 and expected.abs().max() > 0.3
    assert expected[[i for i, row in enumerate(rows) if row.reward is None]].tolist() == [0.0]
    apart = compute_token_advantages(
        values, batch.mask, objective, old, ref
    )  # the negative control: no baseline of divergence
    assert (apart[:, 0] - expected).abs().max() > 1e-3
    loss, _ = policy_loss(logp, spread, batch.mask, objective)
    loss.backward()
    assert abs(loss.detach() - step.loss) < 1e-6
    for (name, p), wanted in zip(policy.named_parameters(), step.gradient, strict=True):
        assert p.grad is not None and (p.grad - wanted).abs().max() < 1e-5, name
        assert wanted.abs().max() > 1e-6, name


def test_loss_of_rloo_equals_trls_where_clips_act(step: Step) -> None:
    trainer, objective = step.trainer, make_objective("rloo")
    assert (trainer.epsilon_low, trainer.epsilon_high) == (objective.clip_low, objective.clip_high)
    for seed in range(3):
        data = tensors(seed)
        data["old"] = data["logp"] + 0.1 * (data["old"] - data["logp"])  # products of ratios on both sides of the clips
        value, gradient = ours(data, objective)
        logp = data["logp"].clone().requires_grad_()
        trainer._get_per_token_logps_and_entropies = lambda *a, logp=logp, **k: (logp, torch.zeros_like(logp), None)
        long = torch.ones(logp.shape, dtype=torch.long)
        inputs = {
            "prompt_ids": long[:, :1],
            "prompt_mask": long[:, :1],
            "completion_ids": long,
            "completion_mask": data["mask"],
            "advantages": data["advantage"],
            "old_logps": (data["old"] * data["mask"]).sum(1),
        }
        expected = super(type(trainer), trainer)._compute_loss(trainer.model, inputs)
        expected.backward()
        assert logp.grad is not None and logp.grad.abs().max() > 1e-3
        assert abs(value - expected.detach()) < 1e-6 and (gradient - logp.grad).abs().max() < 1e-5


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_loss_and_gradient_of_dpo_equal_trls(tmp_path: Path, computed: Any, beta: float) -> None:
    """Through the models: rows and pairs as `dpo` here makes them, and TRL's batch of the same tokens."""
    from trl import DPOConfig, DPOTrainer
    from trl.trainer.dpo_trainer import DataCollatorForPreference

    text = {"prompt": ["ab"], "chosen": ["c"], "rejected": ["d"]}
    trainer: Any = DPOTrainer(
        model=str(save(tmp_path / "model", 4)),
        ref_model=make_model(5),
        args=DPOConfig(output_dir=str(tmp_path / "out"), beta=beta, per_device_train_batch_size=2, **PLAIN),
        train_dataset=datasets.Dataset.from_dict(text),
        processing_class=make_tokenizer(),
    )
    rng = random.Random(0)

    def ids(n: int) -> list[int]:
        return [rng.randrange(5, 40) for _ in range(n)]

    lengths = [(3, 5, 2), (6, 1, 7), (2, 4, 4)]
    pairs = [{"prompt_ids": ids(p), "chosen_ids": ids(c), "rejected_ids": ids(r)} for p, c, r in lengths]
    trainer.model.train()
    expected = trainer._compute_loss(trainer.model, DataCollatorForPreference(pad_token_id=0)(pairs), False)
    expected.backward()

    rows = []
    for task, pair in enumerate(pairs):
        for rollout, (side, reward) in enumerate((("chosen_ids", 1.0), ("rejected_ids", 0.0))):
            n, prompt = len(pair[side]), tuple(pair["prompt_ids"])
            rows.append(Row(prompt, tuple(pair[side]), (1,) * n, (-1.0,) * n, reward, str(task), rollout))
    policy, batch = make_model(4), collate(rows)
    logp = computed(policy, batch)
    ref = log_probabilities(make_model(5), batch)[0].detach()
    rewards, groups = [row.reward or 0.0 for row in rows], [row.task for row in rows]
    whole = Pairs(logp, batch.mask, logp.detach(), ref, rewards, groups, 0, float(batch.mask.sum()))
    loss, figures = preference_loss(whole, DPO.model_validate({"beta": beta}).objective().pair_beta)
    loss.backward()
    assert figures == {"pairs": 3.0} and abs(loss.detach() - expected.detach()) < 1e-6
    theirs = [*trainer.model.parameters()]
    for (name, p), wanted in zip(policy.named_parameters(), theirs, strict=True):
        assert p.grad is not None and wanted.grad is not None
        assert (p.grad - wanted.grad).abs().max() < 1e-5, name
        assert wanted.grad.abs().max() > 1e-6, name
