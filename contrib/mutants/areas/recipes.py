"""Recipes of `sft` and `dpo`, and the agents for small models that one of them teaches."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

SMALL_AGENTS = "tests/plugins/tools/test_small_agents.py"
RECIPES: list[Mutant] = [
    *changes_of(
        "plugins/workbench_tools/consistency.py",
        SMALL_AGENTS,
        ("for a in attempts if a.outcome is not None)", "for a in attempts)", "actions that fail have a vote"),
        ("counts.most_common(1)[0][0]", "next(iter(counts))", "the first action that succeeds counts"),
    ),
    *changes_of(
        "plugins/workbench_tools/first_thought.py",
        SMALL_AGENTS,
        ('return f"Thought: {step}\\n\\n" if step else ""', 'return ""', "the first thought is thrown away"),
        ('.split("\\n\\n")[0]', "", "the whole answer without tools is put in front"),
    ),
    *changes_of(
        "plugins/workbench_tools/agent.py",
        SMALL_AGENTS,
        ("None if failed else json", "json", "a call's error is a result"),
        ('"" if step else thought', "thought", "the first thought is in front of every answer"),
        ("join_prefill(begun, r.text)", "r.text", "the first thought is no part of the answer"),
    ),
    *changes_of(
        "plugins/workbench_training/sft.py",
        nodes_of("tests/plugins/training/test_sft_data.py", "test_the_teachers_agent_goes_on_from_its_first_thought"),
        ("if self.first_thought else {}", "if False else {}", "the teacher acts without a first thought"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/sft_data.py",
        nodes_of("tests/plugins/training/test_sft_data.py", "test_the_teachers_agent_goes_on_from_its_first_thought"),
        ("join_prefill(begun, call.response.text)", "call.response.text", "the first thought is not learned"),
        ('if call.role != "task" or', "if", "the answer without tools is learned"),
    ),
    *changes_of(
        "plugins/workbench_training/imitation.py",
        nodes_of("tests/plugins/training/test_sft_data.py", "test_the_teachers_agent_goes_on_from_its_first_thought"),
        (
            "changes = self.changes(workflow) | draw_one_action(workflow)",
            "changes = self.changes(workflow)",
            "actions that lost the vote are learned",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/papers/faft.py",
        "tests/plugins/training/test_feedback_markers.py",
        ("if rollout.reward >= threshold:", "if True:", "all runs are marked as right"),
        ("before + marker + after", "before + feedback.positive + after", "wrong runs stand behind success"),
        ("if self.detail else", "if False else", "the metric's feedback is left out"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/study_rollouts.py",
        nodes_of("tests/plugins/training/test_feedback_markers.py", "test_rollouts_and_candidates_ask_for_success"),
        ("patch = {**self.changes, **named}", "patch = {**named}", "in use nothing asks for success"),
        ("changes: dict[str, Any] = dict(self.changes)", "changes: dict[str, Any] = {}", "rollouts have no marker"),
    ),
    *changes_of(
        "plugins/workbench_training/papers/lacie.py",
        "tests/plugins/training/test_listener.py",
        ("(False, True): -1.0}", "(False, True): 1.0}", "to mislead a listener is worth as much as to be right"),
        ("(True, False): -0.5", "(True, False): -1.5", "to be doubted is worse than to mislead"),
        ("heard.chance > threshold", "True", "the listener accepts everything"),
        ("statistics.median(chances)", "0.5 * bool(chances)", "the threshold is not the listener's median"),
        ("abs(a.chance - b.chance) >= MARGIN", "True", "chance differences of the listener make pairs"),
        (
            "text = re.sub(re.escape(answer), HIDDEN, rollout.text, flags=re.IGNORECASE) if answer",
            "text = rollout.text if answer",
            "the listener hears the answer",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/papers/orpo.py",
        "tests/plugins/training/test_preflexor.py",
        ("logp - torch.log(-torch.expm1(logp))", "logp", "odds are probabilities"),
        ("(-better - weight", "(-weight", "the better answer's likelihood is left out"),
        ("- weight * F.logsigmoid(margin)", "", "odds are left out"),
        ("/ mask.sum(-1).clamp(min=1.0)", "", "the odds are those of whole answers"),
    ),
    *changes_of(
        "plugins/workbench_training/papers/preflexor.py",
        "tests/plugins/training/test_preflexor.py",
        ("            mask[place] = 0\n", "            pass\n", "thoughts are compared"),
        (
            "last = text.rfind(settings.end)",
            "last = text.find(settings.end)",
            "the answer begins after the first thought",
        ),
        ("if all(row.drawn for row in rows)", "", "pairs without an answer are compared"),
    ),
    *changes_of(
        "plugins/workbench_training/papers/lacie.py",
        ("tests/plugins/training/test_listener.py",),
        ('f"{a.rollout.example.id} pair {n}"', "a.rollout.example.id", "pairs of a row are mixed"),
    ),
]
