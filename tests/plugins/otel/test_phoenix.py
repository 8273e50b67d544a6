"""A run told to a real collector, Phoenix, whose export is read as traces. Needs `phoenix` (arize-phoenix) on PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.processes import free_port

PHOENIX = shutil.which("phoenix")
ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PHOENIX is None, reason="no Phoenix is installed")]

WORKFLOW = f"""
name: told-to-phoenix
lm: bundled/nano
track: otel
data: {{file: {ROOT}/workflows/data/tickets.jsonl, split: {{train: 20, val: 20, test: 60}}}}
metric: exact_match(label)
nodes: {{sort: {{predict: "text -> label: Literal['billing', 'technical', 'shipping', 'returns', 'account']"}}}}
search: {{nodes.sort.instructions: [Sort., Find the thing that the customer still needs fixed.]}}
optimize: [{{random: {{trials: 2}}}}]
budget: {{calls: 400}}
"""


def fetch(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.load(answer)


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    """The address of a Phoenix of its own."""
    ports = free_port(), free_port()
    settings = {
        "PHOENIX_WORKING_DIR": str(tmp_path / "phoenix"),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(ports[0]),
        "PHOENIX_GRPC_PORT": str(ports[1]),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    with (tmp_path / "phoenix.log").open("w") as log:
        process = subprocess.Popen([str(PHOENIX), "serve"], env={**os.environ, **settings}, stdout=log, stderr=log)
    address, end = f"http://127.0.0.1:{ports[0]}", time.monotonic() + 120
    try:
        while True:
            try:
                fetch(f"{address}/v1/projects")
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < end, (tmp_path / "phoenix.log").read_text()
                time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def workbench(folder: Path, *words: str, **variables: str) -> None:
    command = [sys.executable, "-m", "workbench", *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_phoenix_gets_every_span_and_its_export_makes_rows(phoenix: str, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(WORKFLOW)
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true", "OTEL_LOGS_EXPORTER": "none"}
    workbench(tmp_path, "optimize", "w.yaml", "--db", "r.db", OTEL_EXPORTER_OTLP_ENDPOINT=phoenix, **content)
    spans: list[dict[str, Any]] = []
    end = time.monotonic() + 60
    while time.monotonic() < end and not any(span["name"].startswith("optimize") for span in spans):
        time.sleep(1)
        spans = fetch(f"{phoenix}/v1/projects/default/spans?limit=1000")["data"]
    kinds = Counter((span["name"].split()[0], span["span_kind"]) for span in spans)
    rows = kinds["invoke_workflow", "CHAIN"]
    assert rows == kinds["chat", "LLM"] == kinds["sort", "CHAIN"] >= 40
    assert kinds["optimize", "CHAIN"] == kinds["proof", "EVALUATOR"] == 1 and kinds["gate", "EVALUATOR"] >= 2
    call = next(span for span in spans if span["span_kind"] == "LLM")
    assert call["attributes"]["llm.token_count.prompt"] > 0 and call["parent_id"] is not None
    (tmp_path / "spans.json").write_text(json.dumps({"data": spans}))
    workbench(tmp_path, "data", "traces", "spans.json", "--out", "rows.jsonl")
    made = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(made) == rows and not any(row["history"] for row in made), "what two conventions say is one chat"
    assert {len({r["group"] for r in made if r["input"] == row["input"]}) for row in made} == {1}
