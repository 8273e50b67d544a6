"""Rollouts of training: drawn ahead, in batches that others join, and ended where they are far too long."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

OVERLAP = nodes_of(
    "tests/plugins/training/test_overlap.py",
    "test_each_step_is_drawn_by_weights_at_most_one_update_old",
    "test_drawing_and_learning_wait_for_each_other_and_both_end",
    "test_rows_of_older_weights_are_corrected_and_their_gap_is_told",
    "test_without_correction_rows_are_clipped_against_their_own_log_probabilities",
    "test_nothing_is_drawn_ahead_of_the_last_step",
    "test_what_an_alarm_leaves_is_told_and_paid",
)
STRAGGLERS = nodes_of(
    "tests/plugins/training/test_stragglers.py",
    "test_the_limit_is_a_multiple_of_the_median_of_the_longest_conversations",
    "test_groups_are_kept_without_what_was_cut",
    "test_what_was_cut_is_paid_and_told_and_not_learned",
)
ROLLOUTS: list[Mutant] = [
    *changes_of(
        "plugins/workbench_training/rollouts/collector.py",
        OVERLAP,
        ("version=step - 1))", "version=step))", "rows drawn ahead are taken for fresh ones"),
        ("0 < step < c.steps and", "0 < step and", "rollouts are drawn ahead of the last step"),
        (" and step % c.evaluate_every", "", "a step is drawn ahead while a candidate is evaluated"),
        (" and step % c.save_every)", ")", "a step is in flight when a checkpoint is written"),
        (
            "        self._ahead = asyncio.create_task(self._collect(step, version=step - 1))",
            "        self._ahead = asyncio.create_task(self._collect(step, version=step - 1))\n"
            "        await asyncio.wait([self._ahead])",
            "an update waits for what is drawn ahead",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/trainer.py",
        OVERLAP,
        (
            "current = version if learner.correction is not None else step",
            "current = step",
            "rows drawn ahead are corrected by no weights",
        ),
        (
            "current = version if learner.correction is not None else step",
            "current = version",
            "rows drawn ahead are taken for fresh ones without a correction",
        ),
        (" and self._affords(step):", ":", "rollouts are drawn ahead beyond the budget"),
        ("if dropped := await self.collector.drain():", "if dropped := 0:", "paid rollouts vanish without a word"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/stragglers.py",
        STRAGGLERS,
        ("math.ceil(self.multiple * usual)", "math.ceil(usual)", "half of all rollouts are cut"),
        ("max(tokens, longest.get(row.policy, 0))", "tokens", "the last conversation of a rollout sets the limit"),
        ("row.truncated and tokens", "tokens", "rollouts that ended by themselves are dropped"),
        ("return [group for group in kept if group]", "return kept", "groups without a rollout are learned from"),
        ("        if self.multiple is None:\n", "        if True:\n", "what was cut is learned from"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/collector.py",
        STRAGGLERS,
        (
            "self.state.samples += sum(map(len, groups))",
            "self.state.samples += sum(map(len, stragglers.keep(groups, version)))",
            "what was cut is not counted",
        ),
        ("self.state.usual_length |= stragglers.medians()", "pass", "nothing is ever cut"),
    ),
    *changes_of(
        "plugins/workbench_training/serving/policy_lm.py",
        ("tests/plugins/training/test_local_engine.py",),
        ("if so_far >= self.limit:", "if so_far > self.limit:", "a call at the limit draws one token"),
        ("return min(request.max_tokens, self.limit - so_far)", "return request.max_tokens", "answers pass the limit"),
        (
            "if known is not None and prompt[: len(known.ids)] == known.ids:",
            "if False:",
            "each turn is the first of its conversation",
        ),
        ("take(self.concurrency - running - len(found))", "take(self.concurrency)", "a batch grows beyond its places"),
        (
            "        if not self.continuous:  # answered",
            "        if False:  # answered",
            "calls of a static batch are answered one by one",
        ),
        ("take(self.concurrency - running - len(found))", "[]", "turns wait for the longest answer of the batch"),
    ),
    *changes_of(
        "core/workbench/kit/generation.py",
        ("tests/kit/test_generation.py",),
        (
            "int(max(batch.positions.max(), other.positions.max())) + 1",
            "int(batch.positions.max()) + 1",
            "rows that join lose the beginning of their prompts",
        ),
        ("t.narrow(dimension, -missing, width)", "t.narrow(dimension, 0, width)", "the last tokens are forgotten"),
        ("    if missing <= 0:\n", "    if missing == 0:\n", "a batch cannot become narrower"),
        ("if _keeps_all_tokens(batch.cache):", "if True:", "rows join caches that forget tokens"),
        ("left = [row for row in taken if not row.finish]", "left = taken", "complete rows are drawn and given again"),
        ("        taken.extend(found)\n", "", "rows that joined are lost where memory runs out"),
    ),
    *changes_of(
        "core/workbench/kit/batching.py",
        ("tests/kit/test_batching.py",),
        ("            jobs.extend(found)\n", "", "callers that joined a broken batch wait for ever"),
        ("while len(found) < most and not self._closed:", "while len(found) < most:", "a closed batcher takes more"),
        ("        if self._future.done():\n            return\n", "", "a second result kills the thread"),
    ),
]
