"""A firewall before the model blocks one row: through the real client and the command line (contact.md R10)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.lm_faults import answer

from workbench.cli import cli

PAGE = b"<html><head><title>Access denied</title></head><body>Your request looks like an attack.</body></html>"


class Firewall(BaseHTTPRequestHandler):
    """Answers 403 with a page where the prompt holds SQL, or to everything; else it lets the model answer."""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        blocked = "SELECT" in text or self.server.closed  # type: ignore[attr-defined]
        body = PAGE if blocked else json.dumps(answer("label: yes")).encode()
        self.send_response(403 if blocked else 200)
        self.send_header("Content-Type", "text/html" if blocked else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def firewall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Firewall)
    server.closed = False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.chdir(tmp_path)
    rows = [{"text": "DROP it; SELECT 1" if n == 2 else f"row {n}", "label": "yes"} for n in range(6)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "name": "t",
        "lm": {"model": "openai/m", "api_base": f"http://127.0.0.1:{server.server_port}/v1", "attempts": 2},
        "data": {"file": "rows.jsonl", "split": {"train": 2, "val": 2, "test": 2}},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label"}},
    }
    Path("w.yaml").write_text(json.dumps(spec))
    yield server
    server.shutdown()
    server.server_close()


def test_r10_one_blocked_row_has_no_result_and_the_run_goes_on(firewall: Any) -> None:
    done = CliRunner().invoke(cli, ["eval", "w.yaml", "--split", "all"])
    assert done.exit_code == 1 and "all: 1.000 [" in done.stdout
    assert "on 5 of 6 rows; 1 row has no result (blocked 1)" in done.stdout, done.output


def test_r10_where_every_row_is_blocked_the_page_is_quoted(firewall: Any) -> None:
    firewall.closed = True
    done = CliRunner().invoke(cli, ["eval", "w.yaml", "--split", "all"])
    told = f"{done.exception}{done.output}"
    assert done.exit_code == 1 and "none of the 6 rows was answered" in told and "Access denied" in told, told
