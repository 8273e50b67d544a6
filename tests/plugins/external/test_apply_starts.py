"""`apply` starts an agent few times: what it asked is replayed with any texts, and no start is repeated
(existing-agents.md finding 6: 28 starts for four texts, one of which cannot be written)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.external_agents import CLIENT

from workbench.workflow import parse_signature
from workbench_external.config import ExternalConfig
from workbench_external.node import External
from workbench_external.write_back import Entry, find_entries, try_entries, write_entries

TEXTS = {
    "room": "You sort the post of an office.",
    "kind": "Name the kind of each letter.",
    "tone": "Be friendly to whoever writes.",
    "desk": "The desks are in the front room.",
}
ROWS = [{"text": "A bill came in."}, {"text": "You took my money."}]
AS_JSON = ' Answer as {"label": "a"}.'


def tried(place: Path, expressions: dict[str, str], more: str, code: str = "") -> tuple[int, list[Entry], list[str]]:
    """(starts, entries, reported lines) of an agent whose texts stand in JSON and are sent as these expressions."""
    source = place / "src"
    source.mkdir()
    (source / "texts.json").write_text(json.dumps(TEXTS, indent=1))
    said = ", ".join(f'{{"role": "system", "content": {one}}}' for one in expressions.values())
    log = place / "starts"
    (source / "agent.py").write_text(
        f"{CLIENT}\nopen({str(log)!r}, 'a').write('x')\n{code}\n"
        "t = json.load(open(__file__.replace('agent.py', 'texts.json')))\n"
        f'print(chat([{said}, {{"role": "user", "content": row["text"] + " ?"}}])["content"])\n'
    )
    slots = {name: {"in": "system", "match": TEXTS[name], "text": TEXTS[name] + more} for name in expressions}
    shape: dict[str, Any] = {"signature": "text -> label: Literal['a', 'b']", "command": ["python", "src/agent.py"]}
    node = External("agent", ExternalConfig.model_validate({**shape, "slots": slots}), place)
    assert node.signature == parse_signature(shape["signature"])
    entries, lines = find_entries({"agent": node}, source), list[str]()
    try_entries(entries, {"agent": node}, source, ROWS, lines.append)
    return len(log.read_text()), entries, lines


def plain(*names: str) -> dict[str, str]:
    return {name: f"t['{name}']" for name in names}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_6_texts_that_all_fit_are_tried_at_once(count: int, tmp_path: Path) -> None:
    """Two rows, as it is and changed."""
    starts, entries, lines = tried(tmp_path, plain(*[*TEXTS][:count]), " Be brief.")
    assert starts == 4 and all(entry.edits for entry in entries)
    assert len(lines) == 2 and lines[0].startswith("trial 1: room in texts.json:2")
    assert lines[0].endswith(" ... sends them" if count > 1 else " ... sends it")


@pytest.mark.parametrize("bad", TEXTS)
@pytest.mark.parametrize(
    ("expression", "more"),
    [
        pytest.param("change({})", " Be brief.", id="another text"),
        pytest.param("refuse({})", " Be brief.", id="nothing"),
        pytest.param("change({})", AS_JSON, id="several ways"),
    ],
)
def test_6_one_bad_text_of_four_is_found_in_at_most_eight_starts(
    bad: str, expression: str, more: str, tmp_path: Path
) -> None:
    """One that the program changes, and one without which it ends: then nothing tells which text it was."""
    code = "def refuse(text):\n  if 'brief' in text: raise SystemExit(1)\n  return text\n"
    code += "def change(text): return text.replace('brief', 'BRIEF').replace('label', 'LABEL')\n"
    sent = plain(*TEXTS) | {bad: expression.format(f"t['{bad}']")}
    starts, entries, lines = tried(tmp_path, sent, more, code)
    assert [entry.name for entry in entries if not entry.edits] == [bad]
    assert starts <= 8, lines
    assert "cannot be written: the changed agent sends another text" in next(e.why for e in entries if e.name == bad)


def test_6_no_change_is_started_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ways of one text of four, in all companies: each start has other files, or another row."""
    from workbench_external.trial import Trial

    seen = list[Any]()
    copy = Trial._copy  # pyright: ignore[reportPrivateUsage]

    def counted(self: Trial, folder: Path, changed: dict[Path, str]) -> None:
        seen.append(frozenset(changed.items()))
        copy(self, folder, changed)

    monkeypatch.setattr(Trial, "_copy", counted)
    code = "fill = lambda text: text.replace('{', '<').replace('brief', 'BRIEF')\n"
    tried(tmp_path, plain(*TEXTS) | {"tone": "fill(t['tone'])"}, " Be brief: {x} ${y}.", code)
    assert len(seen) <= len({*seen}) + 1, "but for the last check, on the other row"


def test_6_texts_of_one_form_of_templates_are_tried_in_each_form_together(tmp_path: Path) -> None:
    sent = {name: f"t['{name}'].format()" for name in TEXTS}
    starts, entries, lines = tried(tmp_path, sent, AS_JSON)
    assert all(entry.edits for entry in entries) and starts == 5, lines


def in_two_places(place: Path, other: str) -> tuple[list[Entry], list[str], str]:
    """A text that stands in two places: one is sent."""
    source = place / "src"
    source.mkdir()
    text = f"echo the post of an office >> {place}/ran"
    (source / "agent.py").write_text(
        f"{CLIENT}\nimport os\nsystem = {text!r}\n{other.format(text)}\n"
        'print(chat([{"role": "system", "content": system}, {"role": "user", "content": row["text"]}])["content"])\n'
    )
    shape = {"signature": "text -> label: Literal['a', 'b']", "command": ["python", "src/agent.py"]}
    slots = {"system": {"in": "system", "match": text, "text": f"touch {place}/pwn"}}
    node = External("agent", ExternalConfig.model_validate({**shape, "slots": slots}), place)
    entries, lines = find_entries({"agent": node}, source), list[str]()
    assert "is in several places: agent.py:" in entries[0].why
    try_entries(entries, {"agent": node}, source, ROWS, lines.append)
    return entries, lines, "".join(write_entries(entries).values())


def test_9_of_a_text_in_two_places_the_one_that_is_sent_is_written(tmp_path: Path) -> None:
    (entry,), lines, written = in_two_places(tmp_path, "old = {!r}")
    assert not entry.why and written.count("pwn") == 1 and "old = 'echo" in written
    assert any("too, and is left there" in line for line in lines)


def test_9_both_are_written_where_both_are_sent(tmp_path: Path) -> None:
    (entry,), _, written = in_two_places(tmp_path, "if 'money' in row['text']: system = {!r}")
    assert not entry.why and written.count("pwn") == 2


def test_security_9_a_command_with_the_same_text_is_not_run_with_the_new_one(tmp_path: Path) -> None:
    (entry,), _, written = in_two_places(tmp_path, "os.system({!r})")
    assert not entry.why and written.count("pwn") == 1
    assert (tmp_path / "ran").exists() and not (tmp_path / "pwn").exists()


def test_a_text_that_another_slot_keeps_is_not_certain(tmp_path: Path) -> None:
    """One literal, sent as a message and as a part of another, of which one was changed."""
    (tmp_path / "agent.py").write_text(f"ROOM = {TEXTS['room']!r}\n")
    slots = {
        name: {"in": name, "match": TEXTS["room"], "text": text} for name, text in (("system", "New."), ("user", None))
    }
    shape: dict[str, Any] = {"signature": "text -> label", "command": ["python", "agent.py"], "slots": slots}
    node = External("agent", ExternalConfig.model_validate(shape), tmp_path)
    (entry,) = find_entries({"agent": node}, tmp_path)
    assert entry.edits and entry.finding.doubt == "user, which was not changed, stands there, too"
