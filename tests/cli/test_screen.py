"""What a person reads in a terminal: wrapped at its width, said once, and ended by a command that can be pasted."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from tests.cli.test_progress import Terminal, terminal
from tests.helpers.planted import plant

from workbench.cli import cli, main, say
from workbench.cli.output import Output, wrap
from workbench.cli.progress import listener, print_report
from workbench.store import typed

__all__ = ["terminal"]  # a fixture

#: What stands on the screen after a run, with the names of runs, seconds and the width of columns made alike.
WHOLE_RUN = """\
run 0123abcd of planted; budget: calls 400; database run.db
warning: no answer can be right in 26 of 104 rows: their 'label' is none of the
    values that 'label' may have: 'd' in train.jsonl:4 "train 3 topic0 word0: a
    d-thing", 'd' in train.jsonl:8 "train 7 topic0 word0: a d-thing", 'd' in
    train.jsonl:12 "train 11 topic1 word1: a d-thing", 'd' in train.jsonl:16
    "train 15 topic3 word3: a d-thing" and 22 more. Correct them, or leave them
    out: data: {where: {label: {one_of: [a, b, c]}}}
baseline: val 0.125 [0.04, 0.31], 7 failed
candidate e1dbffea (random draw 0): val 0.667 [0.47, 0.82], 6 failed  <- best
sealed test of baseline and winner
workbench run 0123abcd: finished
Score 0.183 -> 0.700 on 60 sealed rows: the gain is shown [+0.365, +0.649].

per row  val  test  tokens  $/1,000 rows  model s  calls
baseline  0.125  0.183 (n=60)  72.83  0  T  1
winner  0.667  0.700 (n=60)  118.8  0  T  1

Changed:
  nodes.sort.instructions: "Plain." -> "Think about the kind...
Spent: 168 calls of 400 (0 more answered from the journal), 15872 tokens in, 168
    out, $0.0000, T s
1 warning and all figures: workbench show 0123abcd --db run.db
Result: out.yaml
Next: workbench compare 0123abcd --changed --db run.db"""


# The renderer


def shown(width: int, *parts: Any, monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[str]:
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    with redirect_stdout(screen), redirect_stderr(screen):
        say(*parts, **how)
    return screen.getvalue().splitlines()


def test_lines_are_wrapped_between_words_and_what_follows_is_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "  The side that ran second on a row had more\nof it."
    lines = ["  The side that ran", "      second on a row", "      had more", "of it."]
    for err in (False, True):
        assert shown(21, text, err=err, monkeypatch=monkeypatch) == lines
        assert shown(80, text, err=err, monkeypatch=monkeypatch) == text.split("\n")
    assert shown(21, text, verbatim=True, monkeypatch=monkeypatch) == text.split("\n")


@given(st.text("ab \u65e5", max_size=80), st.integers(8, 30))
def test_wrapping_changes_nothing_but_spaces_and_no_line_is_too_long(text: str, width: int) -> None:
    lines = wrap(text, width).split("\n")
    assert " ".join(lines).split() == text.split()
    for line in lines:
        cells = sum(1 + (c > "\xff") for c in line.rstrip())
        assert cells <= width or len(line.split()) == 1, "only a word that is too long by itself"


def test_a_command_and_code_stay_on_one_line() -> None:
    text = "Nothing paid for is lost. Resume it with: workbench resume 0a1b --db 'a b/x.db'"
    for width in (50, 60, 70):
        assert wrap(text, width).split("\n")[-1] == "    workbench resume 0a1b --db 'a b/x.db'"
    assert wrap("see `workbench trust a.yaml`, then go on", 30).split("\n")[0] == "see `workbench trust a.yaml`,"
    assert wrap("Next: workbench validate a.yaml, then put your own rows there", 40).split("\n") == [
        "Next: workbench validate a.yaml, then",
        "    put your own rows there",
    ]


def test_a_pipe_gets_whole_lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    say("word " * 30)
    assert capfd.readouterr().out == "word " * 30 + "\n"


# The end of a run


def run_planted(screen: Terminal, quiet: bool = False) -> str:
    """Run a search of two wordings as `optimize` does, in the working directory. Returns what stands on the screen."""
    nodes = {"sort": {"predict": "text -> label: Literal['a', 'b', 'c']", "instructions": "Plain."}}  # no answer is d
    with redirect_stdout(screen), redirect_stderr(screen):
        with listener(Output(quiet)) as listen:
            report, _ = plant(
                Path(),
                lambda request: 0.95 if "Think" in str(request.messages) else 0.2,
                {"random": {"trials": 3}},
                calls=400,
                rows=(20, 24, 60),
                given={"listener": listen},
                nodes=nodes,
                search={"nodes.sort.instructions": ["Plain.", "Think about the kind of the thing before you answer."]},
            )
        print_report(report, quiet)
    text = "\n".join(screen.screen()).replace(report.run, "0123abcd")
    text = re.sub(r"(?<=\S) {3,}(?=\S)", "  ", re.sub(r"\b\d+\.\d s$", "T s", text, flags=re.M))
    return re.sub(r"^((?:baseline|winner) .*  )\S+  1$", r"\1T  1", text, flags=re.M)


@pytest.fixture
def narrow(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("WORKBENCH_DB", raising=False)
    return terminal


def test_a_whole_run_on_80_columns(narrow: Terminal) -> None:
    assert run_planted(narrow) == WHOLE_RUN
    shown = CliRunner().invoke(cli, ["show", "--db", "run.db"]).stdout
    assert "Warning: no answer can be right in 26 of 104 rows" in shown, "with all else that the end leaves out"
    assert "The gain is shown: +0.517 [+0.365, +0.649], p = " in shown and "Next: workbench compare" in shown


def test_quiet_shows_no_warning_but_their_number(narrow: Terminal, capfd: pytest.CaptureFixture[str]) -> None:
    end = WHOLE_RUN.split("baseline and winner\n")[1]
    assert run_planted(narrow, quiet=True) == end and "arning:" not in end
    late: Any = SimpleNamespace(summary=lambda: ["run a", "verdict", "Warning: late"], gain_shown=True)
    for quiet in (False, True):
        print_report(late, quiet)
        assert ("Warning: late" in capfd.readouterr().out) != quiet


def test_a_command_names_the_database_unless_it_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_DB", raising=False)
    assert typed("workbench show a", "workbench.db") == "workbench show a"
    assert shlex.split(typed("workbench show a", Path("my runs/x.db")))[3:] == ["--db", "my runs/x.db"]
    monkeypatch.setenv("WORKBENCH_DB", "x.db")
    assert typed("workbench show a", "x.db") == "workbench show a"
    assert typed("workbench show a", "workbench.db") == "workbench show a --db workbench.db"


# Hints that can be typed


@pytest.mark.parametrize(
    ("option", "hint"), [("--no-open", None), ("--prot", "--port"), ("--ouput", "--out")], ids=lambda value: str(value)
)
def test_a_hint_for_an_option_is_like_it_without_its_dashes(
    option: str, hint: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["view" if option != "--ouput" else "optimize", option])
    said = capfd.readouterr().err
    assert f"No such option '{option}'." in said and ("Did you mean" in said) == (hint is not None)
    assert hint is None or f"'{hint}'" in said


def test_only_files_with_rows_are_offered_in_place_of_rows(tmp_path: Path) -> None:
    (tmp_path / "mails.yaml").write_text("metric: exact_match(b)\ndata: mails.csv\nnodes: {a: {predict: a -> b}}\n")
    for other, hint in (
        (None, "Paths are relative to the workflow file."),
        ("mail.jsonl", "Did you mean 'mail.jsonl'?"),
    ):
        if other:
            (tmp_path / other).write_text("{}")
        done = CliRunner().invoke(cli, ["validate", str(tmp_path / "mails.yaml")])
        assert getattr(done.exception, "hint", None) == hint


def test_inputs_are_json_as_for_serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = list[Any]()
    ran = {
        "spans": [],
        "warnings": [],
        "cost": {"usd": 0, "calls": 0, "tokens": 0, "seconds": 0},
        "spent": {"calls": 0},
    }
    ran |= {"failure": None, "prediction": {}, "score": None}
    monkeypatch.setattr("workbench.cli.trust.require_trust", lambda file, *sets, called: file)
    monkeypatch.setattr("workbench.ledger.describe_usd", lambda *summary: "")
    monkeypatch.setattr("workbench.evaluation.run_single", lambda source, values, *more: given.append(values) or ran)
    run = ["run", "w.yaml", "--input"]
    CliRunner().invoke(cli, [*run, '{"question": "a=b", "n": [1]}', "--input", "other=x"], catch_exceptions=False)
    assert given == [{"question": "a=b", "n": [1], "other": "x"}]
    for wrong, why in (('{"question', "is not a JSON object"), ('{"other": 1}', "a field is given twice")):
        done = CliRunner().invoke(cli, [*run, wrong, "--input", "other=x"])
        assert done.exit_code == 2 and why in done.stderr and len(given) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lm": {"model": "openai/x", "api_key": "sk-1"}}, "Export the key, and write the name of its variable"),
        (
            {"nodes": {"a": {"predict": "Ticket ID, Body -> b"}}},
            "a name has no blank; write data: {fields: {ticket_id: Ticket ID}}",
        ),
    ],
    ids=["a key", "a blank"],
)
def test_a_hint_is_about_what_was_meant(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    spec = {"metric": "exact_match(b)", "data": "rows.csv", "nodes": {"a": {"predict": "a -> b"}}, **change}
    (tmp_path / "w.yaml").write_text(json.dumps(spec))
    done = CliRunner().invoke(cli, ["validate", str(tmp_path / "w.yaml")])
    assert said in f"{done.exception} {getattr(done.exception, 'hint', '')}"
