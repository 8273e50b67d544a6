"""How often sealed rows were tested before: a gain that is tried for again and again shows up by chance."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.proof import Proof
from workbench.store import Store


def earlier_looks(store: Store, run_id: int, rows: str, winner: str) -> list[str]:
    """The tests of changed workflows on the same sealed rows that the database has, each by the name of its run: those of
    other runs, and those of this run with another winner. rows: `Task.test_hash`."""
    store.flush()
    found = store.rows(
        "select distinct r.id, r.run, e.candidate from runs r join evaluations e on e.run_id = r.id "
        "where e.split = 'test' and e.n > 0 and json_extract(r.options, '$.test') = ? "
        "and e.candidate != (select hash from candidates where run_id = r.id order by seq limit 1) "
        "and not (r.id = ? and e.candidate = ?) order by r.id",
        rows, run_id, winner,
    )  # fmt: skip
    return [row["run"] for row in found]


def looks_warning(looks: Sequence[str], proof: Proof) -> str:
    """What earlier tests on the same rows mean for this one, by Bonferroni's rule."""
    level = 0.05 / (len(looks) + 1)
    names = list(dict.fromkeys(looks))
    runs = ", ".join(names[-5:]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    fails = proof.shown and proof.p >= level
    held = ", and it is not: take the gain as not shown, or test it on rows of its own" if fails else ""
    times = "once" if len(looks) == 1 else f"{len(looks)} times"
    return (f"these sealed rows were tested {times} before (run {runs}): the more tests, the likelier is a gain by chance; with "
            f"{len(looks) + 1} of them p should be below {level:.2g}{held}")  # fmt: skip
