"""A CSV of mails as people have them: line breaks in cells, a misspelt label, an empty mail, a repeated ticket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.task import Example, Task

MAILS = (
    'Ticket,Body,Class\nT-1,"HELLO!!! You took 80 EUR\nfrom my card, twice",billing\n'
    'T-2,"it is\nbroken ""again""",damage\n\nT-3,,billing\nT-3,where is it,billling\n'
)


def mails(folder: Path, **data: Any) -> Path:
    """A file whose rows are mails: the four above, then plain ones."""
    more = "".join(f"T-{n},plain mail about {n * n} things,damage\n" for n in range(4, 30))
    (folder / "mails.csv").write_text(MAILS + more)
    given = {"file": "mails.csv", "split": {"train": 8, "val": 8, "test": 10}, **data}
    nodes = {"sort": {"predict": "Body -> Class: Literal['billing', 'damage']"}}
    spec = {"name": "mails", "lm": "bundled/nano", "data": given, "metric": "exact_match(Class)", "nodes": nodes}
    (folder / "mails.yaml").write_text(json.dumps(spec))
    return folder / "mails.yaml"


def rows_of(task: Task) -> list[Example]:
    return [*task.dataset.train, *task.dataset.val, *task.dataset.test.open()]
