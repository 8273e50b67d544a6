"""Training: sampling that is corrected, presets, and settings without effect."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

CORRECTION = "plugins/workbench_training/correction.py"
CORRECTED_BY_HAND = nodes_of(
    "tests/plugins/training/test_correction.py",
    "test_weights_by_hand",
    "test_masked_tokens_and_tokens_without_a_number_weigh_one",
    "test_only_losses_over_rows_are_corrected",
    "test_figures_of_a_step_by_hand",
)
CORRECTED = nodes_of(
    "tests/plugins/training/test_correction.py",
    "test_weights_are_those_at_the_start_of_the_step",
    "test_rows_of_an_older_version_are_clipped_and_not_weighted",
    "test_a_token_apart_is_no_alarm_and_all_tokens_are",
)
PRESETS = nodes_of(
    "tests/plugins/training/test_presets.py",
    "test_constants_of_an_algorithm",
    "test_settings_in_the_file_win",
    "test_the_updates_of_an_algorithm_are_part_of_its_name",
)
NO_EFFECT = "tests/plugins/training/test_no_effect.py"
SAMPLING: list[Mutant] = [
    *changes_of(
        CORRECTION,
        CORRECTED_BY_HAND,
        ("ratio = ratio.clamp(max=correction.cap)", "pass", "weights have no cap"),
        ("left_out = whole < correction.low", "left_out = whole < 0.0", "rows that are too unlikely are learned"),
        ("left_out = left_out | (whole > correction.high)", "pass", "rows that are too likely are learned"),
        (
            "compute_ratio(log_ratio, mask, correction.mask)",
            "compute_ratio(log_ratio, mask, 'trajectory')",
            "long rows are left out",
        ),
        ("where(known, before - sampled,", "where(known, sampled - before,", "the weight is the inverse one"),
        ("& torch.isfinite(sampled)", "", "a number that the sampler did not give reaches the gradient"),
        (
            "objective.is_corrected and learning.temperature == 1.0",
            "objective.is_corrected",
            "two temperatures are compared",
        ),
        ("counted = (mask > 0) & fresh[:, None]", "counted = mask > 0", "drift counts rows of older versions"),
        ("self.log_ratios += other.log_ratios", "pass", "drift of other micro-batches is lost"),
        ("(np.expm1(found) - found).mean()", "(np.expm1(-found) + found).mean()", "the divergence is the reverse one"),
    ),
    *changes_of(
        "plugins/workbench_training/learner.py",
        CORRECTED,
        ("weight = self._weigh(before, part)", "weight = None", "sampling is not corrected"),
        (
            "logp.detach() if old is None else old, part.sampled)",
            "logp.detach(), part.sampled)",
            "weights move within a step",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/step_loss.py",
        CORRECTED,
        ("weight=terms.weight,", "weight=None,", "weights do not reach the loss"),
    ),
    *changes_of(
        "plugins/workbench_training/presets.py",
        PRESETS,
        ('{"clip_high": 0.28, "aggregate"', '{"clip_high": 0.2, "aggregate"', "dapo clips as grpo does"),
        ('{"clip_high": 0.4, "aggregate"', '{"clip_high": 0.28, "aggregate"', "prorl clips as dapo does"),
        ('{"scale": "batch_std", "aggregate"', '{"scale": "std", "aggregate"', "lite_ppo scales as grpo does"),
        ('"clip_low": 3e-4, "clip_high": 4e-4', '"clip_low": 0.2, "clip_high": 0.2', "gspo has the clips of tokens"),
        (
            '"surrogate": "cispo", "clip_high": 5.0',
            '"surrogate": "cispo", "clip_high": 1.28',
            "the cap of cispo is a clip",
        ),
        ('learning={"minibatches": 8},', "", "lite_ppo has one update a step"),
        (
            'learning={"minibatches": 4},\n        source="arXiv 2507.18071',
            'source="arXiv 2507.18071',
            "gspo has one update a step",
        ),
        (
            'learning={"minibatches": 4},\n        source="arXiv 2505.24864',
            'source="arXiv 2505.24864',
            "prorl has one update a step",
        ),
        (
            'learning={"minibatches": 16},\n        source="arXiv 2503.14476',
            'source="arXiv 2503.14476',
            "dapo has one update a step",
        ),
        (
            'learning={"minibatches": 16},\n        source="arXiv 2506.13585',
            'source="arXiv 2506.13585',
            "cispo has one update a step",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/grpo.py",
        PRESETS,
        ("**PRESETS[self.algorithm].learning, **given})", "**given})", "updates of an algorithm reach no learner"),
        ('found["learning"] = resolved(', "resolved(", "a training with other updates has the same name"),
    ),
    *changes_of(
        "plugins/workbench_training/no_effect.py",
        NO_EFFECT,
        (
            "if name in given and name not in _unread(objective) and not several",
            "if False",
            "clips of one update are taken",
        ),
        ("if most != learning.max_tokens", "if False", "a divisor is not what nodes may write"),
        ("if not o.beta:\n        unread", "if False:\n        unread", "the form of no divergence is taken"),
    ),
    *changes_of(
        "plugins/workbench_training/alarms.py",
        ("tests/plugins/training/test_correction.py",),
        ("not gap <= OFF_POLICY_GAP", "gap > 1e9", "sampling far from training is no alarm"),
        ("not apart <= OFF_POLICY_KL", "apart > 1e9", "a divergence of sampling is no alarm"),
    ),
]
