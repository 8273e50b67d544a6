"""Self-play, and roles that learn in turn or are exchanged."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

SELF_PLAY: list[Mutant] = [
    *changes_of(
        "plugins/workbench_training/self_play/proposals.py",
        ("tests/plugins/training/test_self_play.py",),
        ("1.0 - 2.0 * abs(proposal.agreement - 0.5)", "proposal.agreement", "easy proposals earn most"),
        (" - settings.repetition * alike", "", "repeated proposals cost nothing"),
        (" + settings.tools * tools", "", "tools earn nothing"),
        (
            "if not proposal.fields or name_task(proposal.fields) in known else",
            "if not proposal.fields else",
            "known rows earn",
        ),
        ("and low <= agreement <= high", "", "rows beyond the band are learned"),
        ("max(votes, key=lambda", "min(votes, key=lambda", "the rarest answer is the label"),
    ),
    *changes_of(
        "plugins/workbench_training/self_play/turns.py",
        nodes_of(
            "tests/plugins/training/test_self_play.py",
            "test_both_are_trained_and_the_solver_learns_written_rows",
        ),
        ("        self.source.earlier += self.schedule.steps\n", "", "versions of a later turn answer from the journal"),
    ),
    *changes_of(
        "plugins/workbench_training/self_play/turns.py",
        nodes_of(
            "tests/plugins/training/test_self_play.py",
            "test_a_model_of_outcomes_decides_what_written_rows_earn_and_the_metric_what_others_do",
        ),
        ("rollout.example.id in self.written and ", "", "the model of outcomes judges labelled rows"),
        ("if self.judge is None or not self.judging:", "if self.judge is None:", "a model that tells nothing decides"),
        ("(right - rollout.parts[name])", "right", "verdict and metric are added"),
    ),
    *changes_of(
        "plugins/workbench_training/self_play/outcome_model.py",
        nodes_of("tests/plugins/training/test_self_play.py", "test_a_model_of_outcomes_learns_what_is_right"),
        (
            "        self.policy.restore(self.start)\n",
            "        return Fit(1.0, 16)\n",
            "a model of outcomes is not trained",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/self_play/outcome_model.py",
        nodes_of("tests/plugins/training/test_self_play.py", "test_a_rare_outcome_weighs_as_much_as_a_frequent_one"),
        ("[weights[run.right] for run in batch]", "[1.0 for run in batch]", "rare outcomes are not learned"),
    ),
    *changes_of(
        "plugins/workbench_training/role_exchange.py",
        ("tests/plugins/training/test_roles.py",),
        ("    second.load(_renamed(one, first, second))\n", "", "both roles continue from one policy"),
    ),
    *changes_of(
        "plugins/workbench_training/trainer.py",
        ("tests/plugins/training/test_roles.py",),
        ("step % self.schedule.swap_every == 0", "False", "roles are never exchanged"),
        ("if trains is not None and name not in trains:", "if False:", "all policies learn in every stage"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/node_outputs.py",
        ("tests/plugins/training/test_roles.py",),
        ("        prediction[output] = written[-1]\n", "", "a node's output is not what is scored"),
    ),
]
