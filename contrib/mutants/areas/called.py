"""A finished workflow that is called, and a file of rows that it is run on."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

SERVE, SERVED = "plugins/workbench_serve/", "tests/plugins/serve/test_serve.py"
LOADED, FILES = "core/workbench/inference/loaded.py", "core/workbench/inference/file_to_file.py"
CALLED: list[Mutant] = [
    *changes_of(
        "core/workbench/ledger/ledger.py",
        "tests/inference/test_loaded.py",
        (
            "return await self._pay(lm, request, role, spec, key)\n            finally",
            "return await self._first(request.key(lm.identity), lm, request, role, spec)\n            finally",
            "equal calls share answers",
        ),
        ("self._refused.clear()", "pass", "a rejected key is rejected for ever"),
        ("self.stopping = None\n        self._failures", "self._failures", "a server that was dead stays dead"),
    ),
    *changes_of(
        LOADED,
        "tests/inference/test_loaded.py",
        ("if lacking:", "if False:", "a row without an input ends the batch"),
        ("        async with slots:\n", "        if True:\n", "any number of rows runs at once"),
        (
            "            window.cancel()\n\n    async def abatch",
            "            pass\n\n    async def abatch",
            "a batch goes on",
        ),
        ("len(self._waiting) >= self._most or", "", "all rows are begun at once"),
        ("            self._open, self.pool = self._opened(),", "            _, self.pool = self._opened(),", "forks"),
        ("        _LOADED.add(self)\n", "", "what is forgotten is never closed"),
    ),
    *changes_of(
        LOADED,
        nodes_of("tests/inference/test_file_to_file.py", "test_tools_run_for_each_row_though_rows_are_equal"),
        ("Example(str(number), dict(inputs))", 'Example("x", dict(inputs))', "equal rows share what tools gave"),
    ),
    *changes_of(
        FILES,
        nodes_of(
            "tests/inference/test_file_to_file.py",
            "test_a_killed_job_continues_and_pays_for_no_row_twice",
            "test_a_half_written_row_is_done_again",
            "test_an_unfinished_output_of_another_job_is_not_continued",
            "test_answers_behind_an_unfinished_row_are_kept",
            "test_a_second_job_on_one_output_is_refused",
            "test_rows_without_an_answer_for_want_of_a_server_are_asked_again",
            "test_fields_with_the_name_of_an_output_are_kept_beside_it",
            "test_csv_out_has_a_column_for_each_field_and_no_formulas",
        ),
        ("        self.file.truncate(end)\n        self.file.seek(end)\n", "", "half a row stays"),
        ('if json.loads(head) != {"job": job}:', "if False:", "rows of another job are continued"),
        ("wf.batch(asked[part.done :]", "wf.batch(asked", "rows that are done are done again"),
        ("pool, journal, part.done", "pool, None, part.done", "calls in flight at a kill are paid again"),
        ("fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass", "two jobs write one output"),
        ("                if FailureKind(kind).infrastructure:\n                    break\n", "", "an outage is final"),
        ("    Journal(store, run_id).delete_unanswered_calls()\n", "", "a failed call is never asked again"),
        ("**dict.fromkeys(outputs), ", "", "a failed row lacks its outputs"),
        ('return f"\'{value}" if value', "return value if value", "formulas"),
    ),
    *changes_of(
        SERVE + "access.py",
        SERVED,
        ("elif settings.is_local:", "elif False:", "a page of somebody else asks through the browser"),
        ("origin is not None and not _is_here(origin)", "False", "a page of another origin asks"),
        ('kind.lower() != "bearer" or not same', "not shown", "any token is the token"),
        ('kind != "application/json"', "False", "a form of a page is taken"),
    ),
    *changes_of(
        SERVE + "app.py",
        SERVED,
        ("if self._waiting >= self.settings.waiting:", "if False:", "any number waits"),
        (
            "                    if len(raw) > self.settings.max_body:\n",
            "                    if False:\n",
            "endless bodies",
        ),
        ("                self._waiting -= 1\n", "                pass\n", "who has waited waits for ever"),
    ),
    *changes_of(
        SERVE + "settings.py",
        SERVED,
        ("self.token is None and not no_auth", "False", "anybody on the network asks"),
    ),
    *changes_of(
        SERVE + "errors.py",
        SERVED,
        ("if kind.infrastructure or kind in _PROVIDER:", "if kind.infrastructure:", "a provider's refusal is ours"),
    ),
    *changes_of(
        "core/workbench/inference/bundle_files.py",
        "tests/inference/test_bundle.py",
        ("            self._add_imports(path)\n", "            pass\n", "modules beside a tool stay behind"),
        ("if Path(text).is_absolute() and", "if False and", "an absolute path is carried along"),
    ),
    *changes_of(
        "core/workbench/lm/weights.py",
        "tests/inference/test_bundle.py",
        ("not Path(written).is_relative_to(folder.resolve())", "True", "a moved winner loses its weights"),
    ),
]
