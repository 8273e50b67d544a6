"""Training: losses, advantages, rows of tokens."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

LOSS = "plugins/workbench_training/loss.py"
LOSSES = "tests/plugins/training/test_losses.py"
TRL = nodes_of(LOSSES, "test_loss_and_gradient_equal_trls")
LOSSES_BY_HAND = nodes_of(
    LOSSES,
    "test_split_order_and_padding_do_not_matter",
    "test_masked_tokens_get_exactly_no_gradient",
    "test_kl_forms_estimate_the_same_divergence",
    "test_preferences_by_hand",
    "test_dpo_by_hand",
)
P3O = nodes_of(
    "tests/plugins/training/test_p3o.py",
    "test_clips_by_hand",
    "test_the_bounds_may_differ",
    "test_it_is_the_policy_gradient",
    "test_within_the_band_it_is_the_textbook_formula",
    "test_a_shift_of_a_prompts_rewards_changes_nothing",
)
ADVANTAGES = "plugins/workbench_training/advantages.py"
ADVANTAGES_BY_HAND = nodes_of(
    "tests/plugins/training/test_advantages.py",
    "test_grpo_by_hand",
    "test_scales_by_hand",
    "test_gigpo_by_hand",
    "test_long_rollouts_have_one_vote",
    "test_dr_mas_by_hand",
    "test_a_single_rollout_teaches_nothing",
    "test_shift_scale_and_order_of_rewards",
    "test_constraints_weigh_costs_and_multipliers_move_to_the_budget",
    "test_a_divergence_in_the_reward_falls_on_the_tokens_before_it",
    "test_all_pairs_of_a_group_in_p3os_gradient_are_rloo",
    "test_turns_that_continue_are_one_row_with_the_tools_masked",
    "test_a_history_that_was_tokenized_otherwise_forks_a_row",
    "test_rows_survive_json_and_refuse_ragged_fields",
)
TRAINING: list[Mutant] = [
    *changes_of(
        LOSS,
        LOSSES_BY_HAND,
        (
            "log_ratio = torch.where(mask > 0, logp - old, torch.zeros_like(logp))\n    ratio",
            "log_ratio = logp - old\n    ratio",
            "what stands in the padding reaches the ratio",
        ),
        ("loss = torch.where(mask > 0, loss, torch.zeros_like(logp))", "pass", "masked tokens are learned"),
        (
            "return torch.exp(log_ratio) - log_ratio - 1.0",
            "return torch.exp(-log_ratio) + log_ratio - 1.0",
            "k3 is that of the reverse divergence",
        ),
        ("return 0.5 * log_ratio * log_ratio", "return log_ratio * log_ratio", "k2 is twice as large"),
        ("return -log_ratio\n", "return log_ratio\n", "k1 has the wrong sign"),
        (
            ".clamp(min=1.0)).sum() / max(rows, 1)",
            ".clamp(min=1.0)).sum() / max(logp.shape[0], 1)",
            "the mean over rows depends on the split",
        ),
        (
            "total = loss.sum() / max(tokens, 1.0)",
            "total = loss.sum() / mask.sum().clamp(min=1.0)",
            "the mean over tokens depends on the split",
        ),
        ("rewards[i] > rewards[j]]", "rewards[i] >= rewards[j]]", "equal answers make pairs"),
        ("groups[i] == groups[j] and rewards[i]", "rewards[i]", "answers to two questions make pairs"),
        ("(gained[i] - gained[j])", "(gained[j] - gained[i])", "the worse answer is preferred"),
        (
            "gained = ((logp - ref) * mask).sum(-1)",
            "gained = (logp - ref).sum(-1)",
            "preferences look at masked tokens",
        ),
    ),
    *changes_of(
        LOSS,
        TRL,
        (
            "return -torch.min(ratio * advantage, clipped * advantage)",
            "return -torch.max(ratio * advantage, clipped * advantage)",
            "the loss is optimistic",
        ),
        (
            "clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high)",
            "clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_low)",
            "the upper bound of the clip is the lower one",
        ),
        ("total = total / mask.sum(-1, keepdim=True).clamp(min=1.0)", "pass", "the ratio of a sequence is not a mean"),
        (
            "ratio.clamp(max=objective.clip_high).detach()",
            "ratio.clamp(max=objective.clip_high)",
            "CISPO learns through its weight",
        ),
        ("loss = loss + objective.beta * kl", "loss = loss - objective.beta * kl", "the divergence is sought"),
    ),
    *changes_of(
        LOSS,
        P3O,
        ("if worth[i] >= worth[j] else (j, i)", "if True else (j, i)", "pairs are not put in order"),
        (
            "each = [2.0 / (sizes[group_of[i]] - 1)",
            "each = [2.0 / (sizes[group_of[i]])",
            "answers of large groups weigh more",
        ),
        (
            "return torch.min(margin * log_ratio, margin",
            "return torch.max(margin * log_ratio, margin",
            "the clip of pairs is optimistic",
        ),
        ("ratio = (good + bad).exp()", "ratio = (good - bad).exp()", "the joint ratio is a quotient"),
    ),
    *changes_of(
        ADVANTAGES,
        ADVANTAGES_BY_HAND,
        (
            "scale[group] = np.std(amounts[group], ddof=1)",
            "scale[group] = np.std(amounts[group], ddof=0)",
            "the deviation is that of a population",
        ),
        (
            "return (n * mean - values) / (n - 1) if",
            "return (n * mean - values) / n if",
            "leave-one-out divides by all",
        ),
        (
            'counts[group] = len(group) > 1 or objective.singleton == "raw"',
            "counts[group] = True",
            "a single rollout teaches",
        ),
        ("later = own + gamma * later", "later = own + later", "returns are not discounted"),
        ("for i in reversed(indices):", "for i in indices:", "returns look back"),
        (
            "log_ratio.flip(-1).cumsum(-1).flip(-1)",
            "log_ratio.cumsum(-1)",
            "a token bears the divergence of earlier ones",
        ),
        ("/ len(costs) - constraint.budget)", "/ len(costs) + constraint.budget)", "a budget of costs is added"),
        ("found = found / (1.0 + sum(weights.values()))", "pass", "multipliers make larger steps"),
        (
            "found = found - weight * subtract_baseline(",
            "found = found + weight * subtract_baseline(",
            "costs are sought",
        ),
        (
            "units.append((key, math.fsum(finite) / len(finite) if finite",
            "units.append((key, math.fsum(finite) if finite",
            "long rollouts have more votes",
        ),
        (
            "spread = values[:, None] * mask",
            "spread = values[:, None] * (mask * 0 + 1)",
            "advantages stand on masked tokens",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/token_rows.py",
        ADVANTAGES_BY_HAND,
        ("mask=row.mask + (0,) * len(between)", "mask=row.mask + (1,) * len(between)", "what a tool said is learned"),
        ("if prompt[: len(so_far)] != so_far:", "if False:", "a history that was tokenized otherwise is continued"),
        (
            "logprobs=row.logprobs + (0.0,) * len(between) + logprobs,",
            "logprobs=row.logprobs + logprobs + (0.0,) * len(between),",
            "log-probabilities stand at other tokens",
        ),
        ("if len(lengths) > 1:", "if False:", "ragged rows are taken"),
        (
            "index = last.get(agent) if merge else None",
            "index = last.get(agent)",
            "steps are merged though credit goes by steps",
        ),
    ),
]
