"""A chain of optimizers: what the first changes in the graph, the next takes as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.stored_runs import StoredLM, write

from workbench.run import Options, optimize


def test_after_an_edit_of_the_graph_what_is_left_of_the_search_space_is_searched(tmp_path: Path) -> None:
    """`mcts` puts an ensemble in the place of `sort`, which has no `instructions`: the next optimizer failed at them,
    and the run with it."""
    notes: list[str] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told":
            notes.append(f"{data['optimizer']}: {data['message']}")

    options = Options(out=str(tmp_path / "o.yaml"))
    file = write("structure", tmp_path)
    report = optimize(file, database=tmp_path / "run.db", pool=StoredLM(), options=options, listener=listen)
    assert report.status == "finished" and report.winner.tree["nodes"]["sort"]["kind"] == "ensemble"
    (said,) = [note for note in notes if note.startswith("random: no longer searched")]
    assert "nodes.sort.instructions" in said and "nodes.note" not in said
