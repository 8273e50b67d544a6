"""`workbench init`: starter folders, each of which runs on the bundled model within seconds. Their rows are made up."""

from __future__ import annotations

import json
from pathlib import Path

from workbench.cli.file_schema import json_schema

_TEMPLATES = Path(__file__).parent / "template"

#: The starters, each with the folders of its files.
STARTERS = {
    "classify": ("classify", "tickets"),
    "extract": ("extract",),
    "agent": ("agent", "tickets"),
    "rag": ("rag",),
}


def starter_files(template: str) -> dict[str, str]:
    """Return the files of a starter, one of STARTERS: a workflow, its rows, its Python, and the schema for editors."""
    paths = [path for folder in STARTERS[template] for path in sorted((_TEMPLATES / folder).glob("*.*"))]
    schema = json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
    return {**{path.name: path.read_text(encoding="utf-8") for path in paths}, "schema.json": schema}
