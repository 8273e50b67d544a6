"""Search environments: the corpus, live tools, the simulated engine, ramps, and what answers earn."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

CORPUS = ("tests/plugins/search/test_corpus.py",)
ENGINE = ("tests/plugins/search/test_simulated_engine.py",)
ANSWERS = ("tests/plugins/search/test_answers.py",)
LIVE = ("tests/plugins/tools/test_live_calls.py",)
SCHEDULES = nodes_of(
    "tests/plugins/training/test_ramps.py",
    "test_the_curve_is_that_of_zerosearch",
    "test_any_numeric_setting_of_a_node_may_change_and_whole_ones_stay_whole",
    "test_addresses_and_values_of_no_use_are_refused",
    "test_what_the_engine_writes_is_not_learned_and_does_not_count_as_said",
)
NOISE = nodes_of(
    "tests/plugins/training/test_ramps.py",
    "test_the_noise_is_what_the_schedule_says_and_the_same_in_a_resumed_run",
)
TERMS = nodes_of("tests/plugins/training/test_ramps.py", "test_rewards_may_name_further_metrics_of_the_file")

SEARCHED: list[Mutant] = [
    *changes_of(
        "plugins/workbench_search/bm25.py",
        CORPUS,
        ("K1 * (1 - B + B * self.lengths[number] / self.mean_length)", "K1", "long documents win"),
        ("count * (K1 + 1) / (count + norm)", "count", "a word that is repeated counts without end"),
        ("having + 0.5))", "having + 1.5))", "rare words weigh less than they should"),
        ("(-scores[number], number)", "(-scores[number], -number)", "of equal documents the last is first"),
    ),
    *changes_of(
        "plugins/workbench_search/corpus.py",
        CORPUS,
        ("@lru_cache(maxsize=8)\ndef _read", "def _read", "each node reads and indexes the corpus for itself"),
        ("content.update(data)", "pass", "a run is resumed on another corpus"),
    ),
    *changes_of(
        "plugins/workbench_search/node.py",
        CORPUS,
        ("pages[number - 1]", "pages[0]", "every page is the first"),
        ("if len(inside) > most:", "if not places:", "a snippet is the beginning of a document"),
    ),
    *changes_of(
        "core/workbench/kit/live_calls.py",
        LIVE,
        ("self.pause * 2 ** (failed - 1)", "self.pause", "pauses do not grow"),
        ("for failed in range(1, self.attempts):", "for failed in range(1, 1):", "nothing is retried"),
        ("if not self.cached:", "if True:", "one query is asked again and again"),
        ("        read_arguments(tool, arguments)\n", "", "wrong arguments are retried"),
    ),
    *changes_of(
        "core/workbench/runtime/runtime.py",
        LIVE,
        ("while (flying := self._flying.get(key)) is not None:", "while False:", "who asks meanwhile asks again"),
    ),
    *changes_of(
        "plugins/workbench_search/simulated_engine.py",
        ENGINE,
        ("draw_noise(ctx) < c.noise", "draw_noise(ctx) >= c.noise", "useful and noisy are exchanged"),
        ("wanted = NOISY if noisy else USEFUL", "wanted = USEFUL", "noise is noted and never made"),
        (", list(ctx.draw.order)]", "]", "all searches of a run are drawn alike"),
        ("where = [ctx.program.workflow.hash, ", "where = [", "every step of training draws alike, whatever the seed"),
        ("return random.Random(digest(where)).random()", "return random.random()", "a resumed run draws other noise"),
        ("        return self.config.knows\n", "        return ()\n", "the agent is asked to fill in the label"),
        ("found[:most]", "found", "more documents are shown than were wanted"),
    ),
    *changes_of(
        "plugins/workbench_tools/node_tools.py",
        ENGINE,
        ("if FailureKind(error.kind).infrastructure:", "if False:", "a dead engine is told to the agent"),
        (
            'if ctx.span.notes.get("asked_at") == ctx.span.turn:',
            "if False:",
            "a step makes more calls than are counted",
        ),
    ),
    *changes_of(
        "plugins/workbench_tools/agent.py",
        ENGINE,
        ("steps * (1 + asked)", "steps", "calls of nodes are not in the budget"),
        (
            'return "\\n".join(f"{n}: {plain.as_text(values.get(n, \'\'))}" for n in super().inputs)',
            'return "\\n".join(f"{n}: {plain.as_text(values.get(n, \'\'))}" for n in self.inputs)',
            "the agent is shown the label",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/ramps.py",
        SCHEDULES,
        ("done = (self.base**done - 1) / (self.base - 1)", "pass", "noise rises in a straight line"),
        ("return round(value) if", "return value if", "whole numbers become fractions"),
        ('("temperature", "top_p")', "()", "what is learned is drawn at another temperature"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/study_rollouts.py",
        NOISE,
        (
            "        changes |= ramped_values(self.ramps, self.study.workflow, step, schedule.steps)\n",
            "",
            "ramps reach no rollout",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/rewards.py",
        SCHEDULES,
        ('OTHERS = ("user", "engine")', 'OTHERS = ("user",)', "what the engine wrote counts as said"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/node_outputs.py",
        TERMS,
        ("        if metric:\n", "        if False:\n", "every term has the score of the first metric"),
    ),
    *changes_of(
        "plugins/workbench_search/findings.py",
        ANSWERS,
        ("if column[most] >= threshold:", "if True:", "any item finds something"),
        ("            best.add(most)", "            best.add(len(best))", "one item stands for several findings"),
        (" - 3 * repeated", "", "repeated items cost nothing"),
        ("s**1.5", "s", "likeness weighs as it is"),
    ),
    *changes_of(
        "plugins/workbench_search/queries.py",
        ANSWERS,
        ("0.5 * 0.2 ** (n - 1)", "0.5", "a query that is repeated earns as others do"),
        ("math.fsum(1 - value for", "math.fsum(value for", "likeness is rewarded"),
        ("max(0.1, bag.total() / WORDS)", "1.0", "short queries earn as long ones"),
        (
            "return 0.5 + (n - 5) * 0.05 if n <= 15 else 0.9 - (n - 15) * 0.02",
            "return 0.5",
            "more queries earn no more",
        ),
    ),
]
