"""The tutorial notebook runs from top to bottom, and shows the figures that it shows in the docs."""

from __future__ import annotations

import html
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def shown(notebook: Any) -> list[str]:
    """The outputs that are the same on each machine: verdicts, scores and printed lines, without times."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pages = [str(output["data"].get("text/html", "")) for output in outputs if "data" in output]
    figures = ("val: ", "Score ", "baseline ", "winner ")
    lines = [line for page in pages for line in html.unescape(page).removeprefix("<pre>").splitlines()]
    verdicts = [line.rsplit("  ", 2)[0] for line in lines if line.startswith(figures)]  # without seconds
    return [*verdicts, *(str(output["text"]) for output in outputs if output.get("name") == "stdout")]


@pytest.mark.slow
def test_the_tutorial_notebook_runs(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copytree(ROOT / "workflows/data", tmp_path / "workflows/data")
    notebook = nbformat.read(ROOT / "docs/tutorial.ipynb", 4)
    before = shown(notebook)
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path / "docs")}}).execute()
    assert any("the gain is shown" in line for line in before) and shown(notebook) == before
    lines = "".join(
        str(o["text"]) for cell in notebook.cells for o in cell.get("outputs", ()) if o.get("name") == "stderr"
    )
    assert "baseline: val 0.558" in lines and "<- best" in lines and "sealed test" in lines
    assert "The gain is shown" in (tmp_path / "docs/report.html").read_text(encoding="utf-8")
