"""The named algorithms, one row each: what differs from the defaults of `objective`, `schedule` and `learning`, and
where each row is from. Papers with a file of their own in `papers/` add theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench_training.extension import Preset, papers
from workbench_training.objective import Objective

#: Advantages come from a critic, so nothing is compared within groups.
VALUES: Mapping[str, Any] = {"group": (), "baseline": "none", "scale": "none", "aggregate": "token"}

_COMPARED: Mapping[str, Preset] = {
    "grpo": Preset({}, source="arXiv 2402.03300, as in TRL 1.16 with loss_type=grpo"),
    "dr_grpo": Preset(
        {"scale": "none", "aggregate": "constant"},
        source="arXiv 2503.20783, as in TRL 1.16 with loss_type=dr_grpo, scale_rewards=none",
    ),
    "dapo": Preset(
        {"clip_high": 0.28, "aggregate": "token"},
        schedule={"dynamic_sampling": 3},
        learning={"minibatches": 16},
        source="arXiv 2503.14476, as in TRL 1.16 (loss), with the 16 updates of a step of section 4.1; its overlong "
        "penalty is a part of the reward of that name",
    ),
    "lite_ppo": Preset(
        {"scale": "batch_std", "aggregate": "token"},
        learning={"minibatches": 8},
        source="arXiv 2508.08221, as in TRL 1.16 with scale_rewards=batch; the 8 updates of a step as TRL's index of "
        "papers counts them from the paper's settings (1,024 answers in batches of 128)",
    ),
    "gspo": Preset(
        {"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
        learning={"minibatches": 4},
        source="arXiv 2507.18071, as in TRL 1.16 with importance_sampling_level=sequence; clips and the 4 minibatches "
        "of a step from its section 5.1, as in TRL's index of papers",
    ),
    "cispo": Preset(
        {"surrogate": "cispo", "clip_high": 5.0, "aggregate": "token"},
        learning={"minibatches": 16},
        source="arXiv 2506.13585, as in TRL 1.16 with loss_type=cispo, with the 16 updates of a step of section 3.1",
    ),
    "reinforce++": Preset(
        {"group": (), "scale": "std", "aggregate": "token", "kl": "k1", "kl_place": "reward", "beta": 1e-3},
        source="arXiv 2501.03262, as described by RLinf and coded in the TRPA repository (verl)",
    ),
    "reinforce++_baseline": Preset(
        {"scale": "batch_centred_std", "aggregate": "token", "kl": "k2", "beta": 1e-4},
        source="arXiv 2501.03262, as described by ms-swift and RLinf",
    ),
    "rloo": Preset(
        {
            "baseline": "leave_one_out",
            "scale": "none",
            "ratio": "trajectory",
            "kl": "k1",
            "kl_place": "reward",
            "beta": 0.05,
        },
        source="arXiv 2402.14740, as in TRL 1.16's RLOOTrainer",
    ),
    "gigpo": Preset(
        {"scale": "none", "step_weight": 1.0},
        source="arXiv 2505.10978, as in the DrMAS repository; gamma of ROLL",
    ),
    "dr_mas": Preset(
        {"group": ("task", "agent"), "count": "row"},
        source="arXiv 2602.08847, as in the DrMAS repository",
    ),
    "prorl": Preset(
        {"clip_high": 0.4, "aggregate": "token", "beta": 1e-4, "resets": True},
        schedule={"dynamic_sampling": 3},
        learning={"minibatches": 4},
        source="arXiv 2505.24864 and 2507.12507 (clips, filter, resets), with the 4 updates of a step of the former's "
        "section 3.2; beta of OpenRLHF's ProRL v2 script",
    ),
    "ppo": Preset(
        {**VALUES, "critic": {"of": "token", "epochs": 4}},
        learning={"epochs": 4},
        source="arXiv 1707.06347, over tokens; gamma 1, lambda 0.95, value clip 0.2, 4 epochs and whitened advantages "
        "as in TRL's PPOConfig and PPOTrainer (0.x); heads over frozen states, as in POAD's code",
    ),
    "constrained": Preset(
        {"constraints": {"tokens": 64.0}},
        source="after arXiv 2310.04373: group-relative advantages of costs in place of its value functions; its "
        "multipliers with a proportional term, as in arXiv 2007.03964",
    ),
}

PRESETS: Mapping[str, Preset] = {
    **_COMPARED,
    **{name: preset for paper in papers().values() for name, preset in paper.presets.items()},
}


def make_objective(algorithm: str, changes: Mapping[str, Any] | None = None) -> Objective:
    """The objective of a named algorithm, with changes, also those of single settings of its critic. Raises KeyError,
    and pydantic's ValidationError."""
    own, given = PRESETS[algorithm].objective, dict(changes or {})
    if isinstance(given.get("critic"), Mapping):
        given["critic"] = {**own.get("critic", {}), **given["critic"]}
    return Objective.model_validate({**own, **given})
