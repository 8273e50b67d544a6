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
    "test_turns_that_continue_are_one_row_with_the_tools_masked",
    "test_a_history_that_was_tokenized_otherwise_forks_a_row",
    "test_rows_survive_json_and_refuse_ragged_fields",
)
RECOMPUTED = nodes_of(
    "tests/plugins/training/test_recomputation.py",
    "test_recomputation_changes_no_gradient",
    "test_no_tensor_as_wide_as_the_vocabulary_is_kept",
    "test_a_checkpointed_layer_keeps_nothing_of_its_own",
    "test_large_models_are_checkpointed_by_default",
    "test_packing_changes_no_gradient",
    "test_an_adapter_stays_in_place_until_the_backward_pass_has_ended",
)
MICRO_BATCHES = "tests/plugins/training/test_micro_batches.py"
MEMORY_HELD = "tests/plugins/training/test_memory_held.py"
RESUMED = nodes_of(
    "tests/plugins/training/test_kills.py", "test_a_resumed_training_reads_no_rollout_from_before_its_checkpoint"
)
MEMORY_COUNT = nodes_of(
    "tests/plugins/training/test_memory_count.py",
    "test_all_weights_of_1_5b_fit_beside_a_server_with_16_rows_of_4096_tokens",
    "test_an_adapter_of_7b_fits_beside_a_server_with_a_row_of_16384_tokens",
    "test_bytes_are_counted_while_their_tensors_live",
    "test_policies_that_take_turns_share_what_only_a_pass_needs",
    "test_what_does_not_fit_is_refused_with_the_settings_that_make_it_fit",
    "test_a_server_that_sleeps_leaves_an_update_the_whole_gpu",
    "test_the_size_of_a_pass_that_fits_is_found",
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
            "gained = ((pairs.logp - pairs.ref) * pairs.mask).sum(-1)",
            "gained = (pairs.logp - pairs.ref).sum(-1)",
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
        ("counts[group] = len(group) > 1\n", "counts[group] = True\n", "a single rollout teaches"),
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
        "plugins/workbench_training/rollouts/token_rows.py",
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
    *changes_of(
        "plugins/workbench_training/model/logprobs.py",
        RECOMPUTED,
        ("if len(states) > size and torch.is_grad_enabled():", "if False:", "logits of all chunks are kept"),
        (
            "states[start : start + size], wanted",
            "states[start : start + size].detach(), wanted",
            "chunks teach nothing",
        ),
        ("range(0, max(1, len(states)), size)", "range(0, max(1, len(states) - size), size)", "a chunk is dropped"),
        (
            "begins = fed.cumsum(0) - fed",
            "begins = fed.cumsum(0) - fed[0]",
            "packed rows are taken for their neighbours",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/model/layer_checkpointing.py",
        RECOMPUTED,
        ("if not (self._on and is_grad_enabled()):", "if True:", "layers are never recomputed"),
        ("self.weights > AUTO_ABOVE", "self.weights < AUTO_ABOVE", "small models are checkpointed, large ones not"),
    ),
    *changes_of(
        "plugins/workbench_training/model/prompt_cache.py",
        RECOMPUTED,
        (
            "self.width], self.which), as_computed(key",
            "self.width], 0 * self.which), as_computed(key",
            "rows mix prompts",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/model/prompt_cache.py",
        nodes_of(
            "tests/plugins/training/test_logprobs.py",
            "test_gradients_of_shared_prompts_have_the_same_bits_on_several_threads",
        ),
        ("prompts.index_select(0, which)", "prompts[which]", "threads decide the last bits of a training"),
    ),
    *changes_of(
        "plugins/workbench_training/model/split_pass.py",
        MICRO_BATCHES,
        ("if leaf.grad is not None:", "if False:", "what later stretches say of earlier keys is lost"),
        ("in reversed(self.stretches):", "in self.stretches:", "the backward pass goes forward"),
        ("(by_state < b)", "(by_state <= b)", "a token is learned in two stretches"),
        ("if not gradient[piece].any():", "if len(piece) == 1:", "pieces of one row are left out"),
    ),
    *changes_of(
        "plugins/workbench_training/model/micro_batches.py",
        MICRO_BATCHES,
        ("self.limit = self._ceiling = half", "self.limit = half", "a size that ran out of memory is tried again"),
        ("min(fits, 2 * self.limit, self._ceiling)", "min(fits, self._ceiling)", "the size of a pass jumps"),
        ("self.meter.room() - gradients)", "self.meter.room())", "gradients have no room"),
        ("max(1, self.meter.most() - gradients)", "max(1, self.meter.most())", "gradients count as activations"),
        ("(len(parts[-1]) + 1) <= limit", "len(parts[-1]) <= limit", "micro-batches are larger than the limit"),
    ),
    *changes_of(
        "plugins/workbench_training/learner.py",
        MICRO_BATCHES,
        (
            "self.optimizer.zero_grad(set_to_none=True)  # also what",
            "pass  # also what",
            "gradients of a pass that ran out of memory count twice",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/trainer.py",
        RESUMED,
        ('self.source.restore(saved["position"])', "pass", "a resumed training forgets what was spent"),
        ("self.source.pass_over(self.schedule, step)", "pass", "candidates of a resumed training are numbered anew"),
    ),
    *changes_of(
        "plugins/workbench_training/serving/policy_lm.py",
        ("tests/plugins/training/test_native_calls.py",),
        ("elif whole.startswith(before):", "elif False:", "turns with calls are tokenized anew"),
        ("same_said(m) for m in messages", "dict(m) for m in messages", "ids of calls identify a conversation"),
    ),
    *changes_of(
        "core/workbench/kit/native_calls.py",
        ("tests/kit/test_native_calls.py",),
        ("call[0] in names for call in calls", "call[0] for call in calls", "an answer with a name is a call"),
        ("if all(calls) else []", "", "calls beside an unreadable one are taken"),
    ),
    *changes_of(
        "plugins/workbench_training/trainer.py",
        nodes_of(
            "tests/plugins/training/test_trainer.py",
            "test_a_longer_training_does_not_delete_the_weights_of_a_shorter_one",
        ),
        ("            claim_weights(folder, self.folder.name)", "            pass", "weights belong to nobody"),
    ),
    *changes_of(
        "plugins/workbench_training/state/checkpoints.py",
        ("tests/plugins/training/test_training_state.py",),
        ("(-scores[key], int(key))", "(scores[key], int(key))", "the worst candidates stay"),
        ("(-scores[key], int(key))", "(-scores[key], -int(key))", "of equal candidates the later stays"),
        (" or key not in scores for name", " for name", "weights without a score are deleted"),
        ("for name in names} - kept", "for name in names}", "all weights are deleted"),
    ),
    *changes_of(
        "plugins/workbench_training/trainer.py",
        MEMORY_HELD,
        (
            'if self.schedule.on_alarm == "rollback":  # nothing',
            "if True:  # nothing",
            "best weights are kept for nothing",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/model/policy.py",
        MEMORY_HELD,
        ("t = (t + layers[owner]", "t = (t - layers[owner]", "an adapter is taken off"),
        ('p.detach().to("cpu", copy=True)', "p.detach()", "the best weights are those of the moment"),
    ),
    *changes_of(
        "core/workbench/kit/generation.py",
        MEMORY_HELD,
        (
            "super().update(as_computed(key_states), as_computed(value_states),",
            "super().update(key_states, value_states,",
            "keys are float32",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/model/memory_count.py",
        MEMORY_COUNT,
        (
            "return self.gradients + max(self.whole, self.weights)",
            "return max(self.whole, self.weights)",
            "gradients take no room",
        ),
        ("self._now -= size", "pass", "memory is never freed"),
        (
            "if shape.lora is None:\n            return model, model",
            "if True:\n            return model, model",
            "adapters train all weights",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/model/preflight.py",
        MEMORY_COUNT,
        ("int(memory * (1 - self.server)) - RESERVE", "memory - RESERVE", "a server takes no memory"),
        ("replace(counted, base=0) if shared else counted", "counted", "a shared base counts twice"),
        ("return self.most <= self.room(memory)", "return True", "everything fits"),
    ),
    *changes_of(
        "plugins/workbench_training/model/preflight.py",
        MEMORY_COUNT,
        (
            "if self.sleeps else self.drawing_room(memory)",
            "if False else self.drawing_room(memory)",
            "no server sleeps",
        ),
        ("and self.resting <= self.drawing_room(memory)", "", "a server that sleeps never draws"),
    ),
]
