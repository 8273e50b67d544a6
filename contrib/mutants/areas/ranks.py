"""All processes of a training draw."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

TESTS = "tests/plugins/training/test_ranks.py"
BOTH = nodes_of(TESTS, "test_both_processes_draw_what_one_draws")
DEATH = nodes_of(TESTS, "test_a_death_ends_the_training_by_its_name_and_calls_stay_open")
ERROR = nodes_of(TESTS, "test_an_error_in_the_second_process_reaches_who_asked_and_nobody_else")
RUN = nodes_of(TESTS, "test_a_run_whose_second_process_is_killed_says_so_and_resumes_to_the_same_weights")
RANKS: list[Mutant] = [
    *changes_of(
        "plugins/workbench_training/scale/drawing.py",
        BOTH,
        (
            "(len(rows) + parts - 1 - i) // parts for i in range(parts)",
            "len(rows) if i == 0 else 0 for i in range(parts)",
            "the first process draws whole static batches alone",
        ),
        (
            "rank = min(range(len(self._flying)), key=self._flying.__getitem__)",
            "rank = 0",
            "the first process draws alone with continuous batching",
        ),
        (
            "[_Drawn.of(places[id(row)], row) for row in complete]",
            "[_Drawn.of(i, row) for i, row in enumerate(complete)]",
            "what others drew goes to the wrong callers",
        ),
        (
            "row.ids, row.logprobs, row.text, row.finish = self.ids, self.logprobs,",
            "row.ids, row.logprobs, row.text, row.finish = self.ids, self.logprobs[:0],",
            "what others drew comes without log-probabilities",
        ),
        ("row.top_p, row.stop, row.seed", "row.top_p, row.stop, row.seed + 1", "others draw with other seeds"),
        ("row.top_p, row.stop, row.seed", "row.top_p, (), row.seed", "others know no stops"),
    ),
    *changes_of(
        "plugins/workbench_training/scale/drawing.py",
        ERROR,
        (
            'RuntimeError(f"process {self.rank}: {error}")',
            'RuntimeError("unknown")',
            "nobody is told what failed where",
        ),
        (
            "                for key in list(taken):\n",
            "                for key in list(taken)[1:]:\n",
            "an error of another process is never heard",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/scale/drawing.py",
        DEATH,
        (
            "return await asyncio.get_running_loop().create_future()",
            "raise",
            "a process that died makes failures of the workflow",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/scale/orders.py",
        DEATH,
        ("        raise ProcessDied(\n", "        raise RuntimeError(\n", "a process that died has no name"),
        ("        _line.broken = True\n        raise", "        raise", "a run waits for the end of a dead process"),
    ),
    *changes_of(
        "plugins/workbench_training/scale/distributed.py",
        nodes_of(TESTS, "test_two_adapters_are_drawn_at_once_each_with_its_own_weights"),
        (
            "Drawer(learners[number].policy.generator)",
            "Drawer(min(learners.items())[1].policy.generator)",
            "others draw all policies with the weights of the first",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/scale/distributed.py",
        BOTH,
        (
            "self.announced, policy.number = True, self.number",
            "self.announced = True",
            "no other process is asked to draw",
        ),
        ("        self.policy.number = None\n", "", "others are asked to draw with weights that they dropped"),
    ),
    *changes_of(
        "plugins/workbench_training/scale/fsdp.py",
        nodes_of(TESTS, "test_weights_in_shares_are_drawn_with_by_both"),
        (
            "            if self.copied:\n                copies",
            "            if self.leads:\n                copies",
            "other processes draw with the weights that training began with",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/base.py",
        RUN,
        ("if count_devices() > 1:", "if False:", "a run on several processes draws in one"),
        (
            "await unless_one_dies(self.train_policies(study, source, folder, weights, number), engines)",
            "await self.train_policies(study, source, folder, weights, number)",
            "a run waits for the answers of a dead process",
        ),
    ),
    *changes_of(
        "core/workbench/kit/generation.py",
        nodes_of("tests/kit/test_generation.py", "test_a_nucleus_beside_it_changes_no_draw_of_a_row"),
        (
            "if nucleus := [i for i, row in enumerate(rows) if row.top_p < 1.0]:",
            "if nucleus := [i for i in range(len(rows)) if any(row.top_p < 1.0 for row in rows)]:",
            "a nucleus changes what other rows of its batch draw",
        ),
    ),
]
