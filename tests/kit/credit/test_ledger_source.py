"""A run that repeats another takes its answers and effects, and no other run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.scripted import Script
from tests.kit.credit.planted import new_store, run_async

from workbench.ledger import Ledger
from workbench.lm import Request
from workbench.spec import BudgetSpec, lm_spec


def test_answers_and_effects_of_the_repeated_run_are_taken_and_no_others(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        for number in (2, 3, 4):
            sql = "insert into runs (id, run, status, started, spec, options) values (?, ?, '', '', '', '')"
            store.execute(sql, number, f"r{number}")
        spec, request = lm_spec({"model": "openai/x", "attempts": 1}), Request(({"role": "user", "content": "hi"},))

        async def ask(run: int, said: str, **settings: Any) -> tuple[str, Any, int]:
            ledger = Ledger(store, run, BudgetSpec.model_validate({}), **settings)

            async def effect() -> str:
                return f"done in {run}"

            settled = await ledger.call(Script(lambda request: said).get(spec), request, "task", spec)
            assert settled.response is not None
            return settled.response.text, await ledger.effect("tool", ["a"], effect), ledger.paid.calls

        assert await ask(1, "first") == ("first", "done in 1", 1)
        assert await ask(2, "second") == ("second", "done in 2", 1)
        assert await ask(3, "third", source=1) == ("first", "done in 1", 0)
        assert await ask(4, "fourth", reuse=True) == ("first", "done in 4", 0)
        store.close()

    run_async(main())
