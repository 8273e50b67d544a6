"""Self-play, and roles that learn in turn or are exchanged."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

SELF_PLAY: list[Mutant] = [
    *changes_of(
        "plugins/workbench_training/papers/self_play/proposals.py",
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
        "plugins/workbench_training/papers/self_play/turns.py",
        nodes_of(
            "tests/plugins/training/test_self_play.py",
            "test_both_are_trained_and_the_solver_learns_written_rows",
        ),
        (
            "        self.source.earlier += self.schedule.steps\n",
            "",
            "versions of a later turn answer from the journal",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/papers/cory.py",
        ("tests/plugins/training/test_roles.py",),
        ("    second.load(_renamed(one, first, second))\n", "", "both roles continue from one policy"),
    ),
    *changes_of(
        "plugins/workbench_training/trainer.py",
        ("tests/plugins/training/test_roles.py",),
        ("if trains is None or name in trains:", "if True:", "all policies learn in every stage"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/node_outputs.py",
        ("tests/plugins/training/test_roles.py",),
        ("        prediction[output] = written[-1]\n", "", "a node's output is not what is scored"),
    ),
    *changes_of(
        "plugins/workbench_training/papers/cory.py",
        ("tests/plugins/training/test_roles.py",),
        ("step % self.every == 0", "False", "roles are never exchanged"),
    ),
]
