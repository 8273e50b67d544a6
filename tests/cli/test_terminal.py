"""Text of models, servers, rows, files and databases cannot control the terminal, wherever it is shown.

The fault `hostile-rows` for what is shown; `tests/plugins/readers` has what is read.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st
from tests.cli.test_progress import Terminal, evaluated, shown_on, terminal
from tests.helpers.planted import plant
from tests.helpers.stored_runs import change, restore

from workbench.base.text import one_line, visible, visible_json
from workbench.cli import Styled, ask, cli, echo_json, main, say
from workbench.cli.output import escaping, say_usage_error
from workbench.cli.progress import listener
from workbench.spec import load_yaml
from workbench.task import dump_yaml

__all__ = ["terminal"]  # a fixture

#: Writes the clipboard (OSC 52), links (OSC 8), clears the screen (CSI, and C1 alone), rings, turns text round, hides.
EVIL = "\x1b]52;c;aGk=\x07\x1b]8;;http://evil\x1b\\\x1b[2J\x9b2J\x9d0;x\x9c\u202edesrever\u2066\u200b\U000e0041"
SHOWN = visible(EVIL)


def looks_plain(text: str) -> bool:
    """Whether a terminal would only show a text. Ours may have colours."""
    return visible(text) == text


def invoke(*words: str) -> Result:
    """A command, without what `main` puts around it for text that is printed past `say`."""
    return CliRunner().invoke(cli, [*words])


def workflow(folder: Path, **changes: Any) -> Path:
    rows = [{"text": f"row {n}", EVIL: EVIL, "label": "a"} for n in range(12)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / "w.yaml"
    spec = {
        "name": f"name {EVIL}",
        "lm": "bundled/nano",
        "data": {"file": "rows.jsonl", "split": {"train": 3, "val": 3, "test": 6}},
        "metric": "exact_match(label)",
        "budget": {"calls": 30},
        "nodes": {"sort": {"predict": "text -> label: Literal['a', 'b']"}},
        "optimize": [{"random": {"trials": 1}}],
        **changes,
    }
    file.write_text(dump_yaml(spec))
    return file


@pytest.fixture
def hostile_server() -> Iterator[str]:
    """A server of models that refuses every key, with escapes in the reason."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else a body waits 40 ms for its head

        def do_POST(self) -> None:
            body = f"no such key {EVIL}".encode()
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


# The eight sources of the review of security (B7)


def test_a_servers_error_is_shown_with_its_escapes_visible(
    hostile_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = workflow(tmp_path, lm={"model": "openai/m", "api_base": hostile_server, "attempts": 1})
    done = invoke("optimize", str(file))
    assert done.exit_code == 1 and "no such key \\x1b]52;c;aGk=" in done.stdout
    assert looks_plain(done.output)
    again = invoke("resume")
    assert "no such key \\x1b]52" in again.stdout and looks_plain(again.output)


def test_what_a_proposer_names_is_visible_in_lines_of_progress(
    capfd: pytest.CaptureFixture[str], terminal: Terminal
) -> None:
    def tell(listen: Any) -> None:
        listen("candidate_evaluated", evaluated(0.5))
        listen("candidate_evaluated", evaluated(0.6, f"note\nbaseline: val 1.000 {EVIL}"))
        listen("optimizer_told", {"optimizer": "adas", "message": f"wrote {EVIL}"})

    with listener() as listen:
        tell(listen)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3 and f"note\\nbaseline: val 1.000 {SHOWN}" in lines[1] and lines[2] == f"adas: wrote {SHOWN}"
    with shown_on(terminal) as listen:
        tell(listen)
    live = terminal.getvalue().replace("\n    ", " ")  # it is wrapped
    assert f"baseline: val 1.000 {SHOWN}" in live and f"adas: wrote {SHOWN}" in live
    assert not any(part in live for part in ("\x1b]", "\x9b", "\x9d", "\u202e", "\u200b"))


def test_rows_that_failed_are_shown_with_their_names_and_values_visible(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, proof={"when_unchanged": "test"})
    rows = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    change(tmp_path, "update results set example = ?, feedback = ?, checksum = null", EVIL, EVIL)
    done = invoke("show", "--failures", "--db", str(tmp_path / "run.db"))
    assert done.exit_code == 0 and f"{SHOWN}  score 0.000  {SHOWN}\n" in done.output and looks_plain(done.output), rows[
        :1
    ]


def test_names_of_fields_are_visible_in_a_single_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("run", str(workflow(tmp_path)), "--example", "0")
    assert f"  {SHOWN}: {SHOWN}" in done.output and looks_plain(done.output), done.output


def test_the_name_of_a_workflow_is_visible_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("optimize", str(workflow(tmp_path)))
    assert f"of name {SHOWN}; budget" in done.stderr and looks_plain(done.output), done.output
    for words in (
        ["validate", "w.yaml"],
        ["runs", "list"],
        ["show"],
        ["compare", "last"],
        ["diff"],
        ["show", "--calls", "2"],
    ):
        done = invoke(*words)
        assert done.exit_code == 0 and looks_plain(done.output), done.output


LOOKS = [
    "runs list",
    "show",
    "show --tree",
    "show --calls 3",
    "show --failures",
    "show --mermaid",
    "compare last",
    "diff",
]
COLUMNS = {
    "runs": ("run", "name", "status", "started", "finished", "host", "version", "file"),
    "candidates": ("optimizer", "note", "hash", "parent"),
    "calls": ("key", "role", "outcome", "message", "kind", "lm"),
    "results": ("example", "failure", "feedback"),
}


@pytest.mark.parametrize("column", [f"{table}.{name}" for table, names in COLUMNS.items() for name in names])
def test_a_strangers_database_is_shown_with_its_escapes_visible(
    column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore("tools", tmp_path)
    table, name = column.split(".")
    unique = name in ("key", "hash")
    monkeypatch.chdir(tmp_path)
    change(tmp_path, f"update {table} set {name} = ? || {name if unique else repr('')}", EVIL)
    if column == "calls.message":  # shown where there is no answer
        change(tmp_path, "update calls set response = null")
    said = ""
    for words in LOOKS:
        done = invoke(*words.split(), "--db", "run.db")
        said += done.output + (visible(done.exception) if done.exit_code else "")
        assert looks_plain(done.output), (words, done.output)
    hidden = (
        "runs.run",  # refused; the others are shown by no look
        "runs.finished",
        "runs.host",
        "runs.version",
        "runs.file",
        "candidates.parent",
        "calls.kind",
        "calls.lm",
    )
    assert "\\x1b]52" in said or column in hidden, "nothing shows it"


@pytest.mark.slow
def test_what_an_mcp_server_prints_is_in_the_error_visible_and_not_on_the_terminal(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    (tmp_path / "server.py").write_text(f"import sys\nsys.stderr.write({'cannot start ' + EVIL!r})\nsys.exit(3)\n")
    code = (
        "import asyncio, pathlib\nfrom workbench.errors import NodeError\nfrom workbench_kit.acting import load_tool\n"
        "tool = load_tool('mcp:python server.py#pay', pathlib.Path())\n"
        "try:\n    asyncio.run(tool({}, 30.0))\nexcept NodeError as error:\n    print(error)\n"
    )  # in a process of its own: mcp keeps the stderr that it is imported with, here one of this test
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "it said: cannot start \\x1b]52" in done.stdout and looks_plain(done.stdout), done.stderr
    assert done.stderr == ""


def test_an_exported_file_has_hidden_characters_as_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["Sort \u202eit\u202c.", f"Plain.\n{EVIL}\n", "caf\u00e9 \u65e5\u672c"]
    nodes = {"sort": {"predict": "text -> label: Literal['a', 'b']", "instructions": texts[0]}}
    invoke("optimize", str(workflow(tmp_path, nodes=nodes, search={"nodes.sort.instructions": texts})))
    for shown in (invoke("export").stdout, Path("optimized.yaml").read_text()):
        assert looks_plain(shown) and "\\u202E".lower() in shown and "\u65e5\u672c" in shown
        found = load_yaml(shown, "w.yaml").value
        assert found["search"]["nodes.sort.instructions"] == texts and found["name"] == f"name {EVIL}"


# The function itself


@given(st.text(max_size=60) | st.text(st.sampled_from("\x1b\x9b\u202e\u2066\u200b\ufe0f\x7f\r\n\ta\U000e0041\ud800")))
def test_what_is_visible_has_only_characters_that_are_seen(text: str) -> None:
    shown = visible(text)
    assert all(c in "\n\t" or c.isprintable() for c in shown) and visible(shown) == shown
    assert "\n" not in one_line(text) and "\t" not in one_line(text)
    shown.encode()


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
def test_files_with_any_text_are_read_back(tree: dict[str, str]) -> None:
    tree = {key: text for key, text in tree.items() if text.isprintable() or EVIL}
    written = dump_yaml({"a": tree})
    assert looks_plain(written) and yaml.safe_load(written) == {"a": tree}


@pytest.mark.parametrize("code", [0x34F, 0x115F, 0x200B, 0x2060, 0x2800, 0x3164, 0xFE0F, 0xFEFF, 0xE0041, 0xE0100])
def test_characters_that_are_drawn_as_nothing_are_escaped(code: int) -> None:
    assert visible(f"a{chr(code)}b") == (f"a\\u{code:04x}b" if code < 0x10000 else f"a\\U{code:08x}b")


def test_letters_of_all_scripts_stay() -> None:
    text = "caf\u00e9 \u65e5\u672c \u0639\u0631\u0628\u064a \u05e2\u05d1\u05e8\u05d9\u05ea \u2713 \U0001f600 a\tb\n"
    assert visible(text) == text


def test_json_for_people_stays_json() -> None:
    value = {EVIL: [EVIL, "\u65e5\u672c", 1.5]}
    assert looks_plain(visible_json(value)) and json.loads(visible_json(value)) == value
    assert "\u65e5\u672c" in visible_json(value)


@pytest.mark.parametrize("value", [EVIL, "\ud800", float("nan"), float("-inf"), {"a": [float("nan"), EVIL]}])
def test_json_output_is_valid_and_plain(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    echo_json(value)
    said = capsys.readouterr().out
    assert said.isascii() and said.count("\n") == 1 and looks_plain(said)
    json.loads(said, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_colours_are_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Terminal()
    with redirect_stderr(screen):
        say(Styled("\x1b[31mError: ", "red", bold=True), "\x1b[32mx", err=True)
        monkeypatch.setenv("NO_COLOR", "1")
        say("plain", err=True, fg="red")
    assert screen.getvalue() == "\x1b[31m\x1b[1m\\x1b[31mError: \x1b[0m\\x1b[32mx\nplain\n"


# What is printed past it


def test_prints_warnings_logs_and_tracebacks_are_made_visible(tmp_path: Path) -> None:
    code = (
        "import logging, sys, warnings\nfrom workbench.cli.output import escaping\n"
        f"evil = {EVIL!r}\n"
        "with escaping():\n"
        "    print(evil); sys.stdout.writelines([evil]); warnings.warn(evil)\n"
        "    logging.warning(evil); sys.stderr.write(evil)\n"
        "    print('\\x1b[31mred\\x1b[0m', '\\r50%')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count(SHOWN) == 2 and done.stderr.count(SHOWN) >= 3
    rest = (done.stdout + done.stderr).replace("\x1b[31m", "").replace("\x1b[0m", "").replace("\r", "")
    assert looks_plain(rest) and "\x1b[31mred\x1b[0m" in done.stdout, "colours of others stay"


def test_errors_of_the_command_line_and_bugs_are_visible(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError(f"bug {EVIL}")

    for words in (
        [f"opt{EVIL}"],
        ["validate", f"no{EVIL}.yaml"],
        ["optimize", "x.yaml", "--budget-calls", "1", "--out", "x", f"{EVIL}\r"],
        ["runs", "list"],
    ):
        if words == ["runs", "list"]:
            monkeypatch.setattr("workbench.cli.runs.open_store", fails)
        with pytest.raises(SystemExit) as ended:
            main(words)
        said = capsys.readouterr()
        assert ended.value.code == (1 if words == ["runs", "list"] else 2)
        assert "\\x1b]52" in said.err and looks_plain(said.out + said.err)


def test_errors_of_click_and_questions_are_visible_by_themselves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say_usage_error(click.UsageError(f"no option {EVIL}", click.Context(cli)))
    assert capsys.readouterr().err.endswith(f"\nError: no option {SHOWN}\n")
    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda text, err: asked.append(text))
    ask(f"Allow {EVIL}?")
    assert asked == [f"Allow {SHOWN}?"]


def test_no_line_of_the_head_of_a_result_file_leaves_its_comment(tmp_path: Path) -> None:
    from workbench.run import prepare
    from workbench.task import workflow_text

    _, _, task, _ = prepare(workflow(tmp_path), [])
    out = tmp_path / "out.yaml"
    out.write_text(workflow_text(task, task.workflow, out, [f"a head\nmetric: python:evil.py:f {EVIL}"]))
    text = (tmp_path / "out.yaml").read_text()
    assert text.startswith("# a head\\nmetric: python:evil.py:f ") and looks_plain(text)
    assert load_yaml(text, "out.yaml").value["metric"] == "exact_match(label)"


def test_during_a_live_line_prints_of_others_are_visible_too(terminal: Terminal) -> None:
    with redirect_stderr(terminal), escaping(), listener() as listen:
        listen("candidate_evaluated", evaluated(0.5))
        print(f"a tool says {EVIL}", file=sys.stderr)
    shown = terminal.getvalue()
    assert f"a tool says {SHOWN}" in shown.replace("\n", "") and "\x1b]" not in shown and "\u202e" not in shown


def test_consent_is_asked_for_what_is_called_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.cli.run_commands import _confirm

    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda text, err: asked.append(text) or SimpleNamespace())
    _confirm(f"pay{EVIL}", {"to": f"me\n{EVIL}"})
    assert looks_plain(asked[0]) and "\n" not in asked[0]
