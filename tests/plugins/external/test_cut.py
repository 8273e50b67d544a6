"""A slot is cut at what stands in the user's source (issue 34, point 5; existing-agents.md, findings 4, 7 and 12)."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner
from tests.helpers.external_agents import CLIENT, write_agent

from workbench.cli import cli
from workbench.lm import Response
from workbench.run import Options, optimize
from workbench.study import make_optimizer
from workbench.workflow import CallRecord, Span
from workbench_external.apply import find_text, write_edits
from workbench_external.config import ExternalConfig, Slot
from workbench_external.gateway import Ask
from workbench_external.hub import Hub
from workbench_external.node import External
from workbench_external.slots.cut import cut_slots
from workbench_external.slots.discover import find_slots
from workbench_external.slots.patches import Patches
from workbench_external.slots.roles import role_of
from workbench_external.slots.template import Template
from workbench_external.sources.folder import Sources
from workbench_testing.simulated import SimulatedLM, SimulatedPool

OWN, MORE = "You sort the post of an office.", "Always answer with one letter."


_TOOL = {"type": "function", "function": {"name": "end", "description": "The vendor's own tool.", "parameters": {}}}
#: Its rules stand in its source, the tool does not.
WITH_A_TOOL_OF_A_FRAMEWORK = f"""{CLIENT}
tools = [json.loads({json.dumps(json.dumps(_TOOL).replace("vendor", "VEN-DOR"))}.replace("VEN-DOR", "vendor"))]
RULES = ["{OWN}", "{MORE}"]
system = "You are an agent of a framework.\\n" + "".join("- " + rule + "\\n" for rule in RULES)
said = [{{"role": "system", "content": system}}, {{"role": "user", "content": row["text"]}}]
print(chat(said, tools=tools)["content"] or "a")
"""


def cut(folder: Path, files: dict[str, str], match: str, place: str = "system", vendor: bool = False) -> dict[str, Any]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    slot = {"in": place, "match": match, "text": match} | ({} if place == "system" else {"name": "look"})
    return cut_slots({place: slot}, Sources([folder]), vendor).slots


def patched(slots: dict[str, Any], sent: str) -> str:
    """A system message as it is sent on, with every slot in capital letters."""
    changed = {
        name: {**slot, "text": slot["text"].replace("answer", "ANSWER").replace("sort", "SORT")}
        for name, slot in slots.items()
    }
    config = ExternalConfig.model_validate({"signature": "q -> a", "command": ["x"], "slots": changed})
    ask = Ask("m", ({"role": "system", "content": sent},))
    return Patches(config, ("a",)).apply(ask, {"q": "x"}).messages[0]["content"]


ADK = f'{OWN}\n\nYou are an agent. Your internal name is "sorter".'
#: What frameworks make of what a user wrote: the source, what is sent, the pieces that are the user's.
COMPOSED = {
    "google-adk: sentences are added": (f'Agent(name="sorter", instruction="{OWN}")', ADK, [OWN]),
    "agno: a description and a list": (
        f'Agent(description="A clerk of the office.", instructions=["{OWN}", "{MORE}"])',
        f"A clerk of the office.\n<instructions>\n- {OWN}\n- {MORE}\n</instructions>",
        ["A clerk of the office.", OWN, MORE],
    ),
    "anthropic: two blocks": (f'system=[dict(text="{OWN}"), dict(text="""{MORE}""")]', f"{OWN}\n{MORE}", [OWN, MORE]),
    "CrewAI: role and goal of a YAML file": (
        f"sorter:\n  role: Clerk of the post office\n  goal: >\n    {OWN[:12]}\n    {OWN[13:]}\n",
        f"You are Clerk of the post office. Your personal goal is: {OWN}\nBegin!",
        ["Clerk of the post office", OWN],
    ),
    "DSPy: a docstring in a long message": (
        f'class Sort(dspy.Signature):\n    """{OWN}\n\n    {MORE}\n    """\n',
        f"Your input fields are: text\nYour objective is: \n        {OWN}\n        \n        {MORE}\nRespond.",
        [],
    ),
    "a constant in an f-string": (
        f'BASE = "{OWN}"\nsystem = f"{{BASE}}\\n{MORE} It is {{day}}."',
        f"{OWN}\n{MORE} It is {{{{1}}}}.",
        [f"{{{{1}}}}\n{MORE} It is {{{{2}}}}.", OWN],
    ),
    "a date that stands in the source": (
        f'system = "{OWN} It is of 2026-11-23."',
        f"{OWN} It is of {{{{1}}}}.",
        [f"{OWN} It is of {{{{1}}}}."],
    ),
    "marks that look like the hole": (
        f'user = "{OWN} This: {{{{text}}}} !".replace("{{{{text}}}}", text)',
        f"{OWN} This: {{{{text}}}} !",
        [f"{OWN} This: {{{{text}}}} !"],
    ),
    "whole": (f'system = "{OWN}"', OWN, [OWN]),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_5_a_slot_is_what_the_user_wrote_of_what_is_sent(name: str, tmp_path: Path) -> None:
    source, sent, pieces = COMPOSED[name]
    file = "agents.yaml" if "YAML" in name else "agent.py"
    slots = cut(tmp_path, {file: source}, sent)
    assert pieces == [] or [slot["match"] for slot in slots.values()] == pieces
    if pieces:
        assert all(find_text(Slot.model_validate(slot), [tmp_path]).edits for slot in slots.values())
    known = sent.replace("{{1}}", "2026-11-23")
    assert patched(slots, known) == known.replace("answer", "ANSWER").replace("sort t", "SORT t").replace(
        '"sorter"', '"sorter"'
    )


def test_parts_of_a_message_know_each_other(tmp_path: Path) -> None:
    """So that a proposer is shown what stands around the one that it writes."""
    source = f'system=[dict(text="{OWN}"), dict(text="""{MORE}""")]'
    slots = cut(tmp_path, {"agent.py": source}, f"{OWN}\n{MORE}")
    found = {name: Slot.model_validate(slot) for name, slot in slots.items()}
    first, second = (role_of(slot, found) for slot in found.values())
    assert [*first.parts.values()] == [OWN, MORE] and first.parts == second.parts


def test_5_the_docstring_behind_a_signature_is_the_slot(tmp_path: Path) -> None:
    """LlamaIndex sends `look(words: str) -> str` before it; Strands and agno without `Args:`."""
    told, section = "Look up words.\n\nIn the long list.", "Args:\n        words: What to look up in it."
    source = f'def look(words):\n    """Look up words.\n\n    In the long list.\n\n    {section}\n    """\n'
    for sent in (f"look(words: str) -> str\n{told}", told):
        slots = cut(tmp_path, {"agent.py": source}, sent, "tool")
        assert [(slot["match"], slot.get("part", False)) for slot in slots.values()] == [(told, sent != told)]
    tool = {"type": "function", "function": {"name": "look", "description": f"look(words: str) -> str\n{told}"}}
    part = {"tool": {"in": "tool", "name": "look", "part": True, "match": told, "text": "Look."}}
    config = ExternalConfig.model_validate({"signature": "q -> a", "command": ["x"], "slots": part})
    found = Patches(config, ("a",)).apply(Ask("m", ({"role": "user", "content": "x"},), (tool,)), {"q": "x"})
    assert found.tools[0]["function"]["description"] == "look(words: str) -> str\nLook." and not found.missed


def test_12_what_can_be_applied_comes_first_and_what_is_a_vendors_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(f'system = "{OWN}"')
    (tmp_path / "CLAUDE.md").write_text("Be kind to whoever writes.")
    tools = {
        f"tool_{n}": {"in": "tool", "name": f"t{n}", "match": f"The vendor's tool number {n}.", "text": "x"}
        for n in range(3)
    }
    theirs = {"system": {"in": "system", "match": "You are the vendor's own agent.", "text": "x"}}
    ours = {
        "system_2": {"in": "system", "match": OWN, "text": OWN},
        "file": {"in": "file", "name": "CLAUDE.md", "match": "x", "text": "x"},
    }
    found = theirs | tools | ours
    assert [*cut_slots(found, Sources([tmp_path]), False).slots] == ["system_2", "file"]
    assert [*cut_slots(found, Sources([tmp_path]), True).slots] == ["system_2", "file", "system", *tools]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert [*cut_slots(theirs | tools, Sources([elsewhere]), False).slots] == ["system", *tools], (
        "the source is not here"
    )
    (tmp_path / "a.rb").write_text('P = "You are the vendor\'s own agent."')
    assert [*cut_slots(theirs | ours, Sources([tmp_path]), False).slots] == ["system_2", "file", "system"], (
        "in a file after all"
    )


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("prompt: |\n  Which kind is this text? $input\n", "Which kind is this text? {{text}}\n"),
        ("prompt: |\n  Which kind is this text? $input\n", "Which kind is this text? {{text}}"),
        ("prompt: |\n  $input\n  That is the whole text.\n", "\n{{text}}\nThat is the whole text."),
    ],
)
def test_9_an_input_at_an_end_keeps_its_name_and_the_space_around_it(tmp_path: Path, source: str, sent: str) -> None:
    slots = cut(tmp_path, {"sorter.yaml": source}, sent, "user")
    assert [slot["match"] for slot in slots.values()] == [sent]
    changed = Slot.model_validate({**slots["user"], "text": f"Read closely. {sent}"})
    (edit,) = find_text(changed, [tmp_path]).edits[:1]
    after = yaml.safe_load(write_edits([edit])[tmp_path / "sorter.yaml"])
    assert after["prompt"].strip() == f"Read closely. {sent}".replace("{{text}}", "$input").strip()


@pytest.mark.parametrize(
    "name", ["CONVENTIONS.md", "openai/gpt-4o-mini", "https://office.example/kinds", "office_of_letters"]
)
def test_9_a_name_in_the_source_that_is_sent_too_is_no_text_to_rewrite(tmp_path: Path, name: str) -> None:
    sent = f"Here are the conventions in {name}, which you follow."
    (slot,) = cut(tmp_path, {"agent.py": f"read({name!r})"}, sent).values()
    assert slot["match"] == sent, "as it is sent, for the gateway alone"


@pytest.mark.parametrize("name", ["Sorting clerk", "Head of all the sorting clerks", "The Office Bot"])
@pytest.mark.parametrize("form", ["Agent(name={!r})", "agent = dict(\n  name=({!r}))"])
def test_7b_a_name_in_a_description_is_no_text_to_rewrite(tmp_path: Path, name: str, form: str) -> None:
    """As openai-agents tells the name of an agent in the description of its hand-off."""
    if len(name.split()) < 4:
        form = "CLERK = {!r}"
    sent = f"Handoff to the {name} agent to handle the request. Sorts letters by their kind."
    source = f"{form.format(name)}\ntold = 'Sorts letters by their kind.'"
    slots = cut(tmp_path, {"agent.py": source}, sent, "tool")
    assert [slot["match"] for slot in slots.values()] == ["Sorts letters by their kind."]


@pytest.mark.parametrize(
    "own", ["Answer in one word.", "Be brief and kind.", "Sort letters: all.", "Clerk of the office"]
)
def test_7b_short_instructions_are_texts(tmp_path: Path, own: str) -> None:
    (slot,) = cut(tmp_path, {"agent.py": f"rules = {own!r}"}, f"A. {own} B.").values()
    assert slot["match"] == own
    (whole,) = cut(tmp_path, {"agent.py": "rules = 'Translate to German'"}, "Translate to German").values()
    assert whole["match"] == "Translate to German", "all of what is sent is no name"


def test_9_words_of_a_script_without_spaces_are_a_text(tmp_path: Path) -> None:
    own = "您好请把办公室的信件分成四类"
    (slot,) = cut(tmp_path, {"agent.py": f"rules = {own!r}"}, f"A. {own}").values()
    assert slot["match"] == own


@pytest.mark.slow
def test_9_optimize_says_in_one_line_how_many_texts_it_left_out(tmp_path: Path) -> None:
    path = write_agent(tmp_path, WITH_A_TOOL_OF_A_FRAMEWORK, rows=(4, 2, 4), budget=200)
    report = optimize(
        path,
        database=tmp_path / "r.db",
        optimizers=[("checked", make_optimizer({"rewrite": {"rounds": 1, "width": 1}}))],
        pool=SimulatedPool(SimulatedLM()),
        options=Options(out=str(tmp_path / "out.yaml"), allow_unproved=True),
    )
    (line,) = [line for line in report.warnings if "left out" in line]
    assert line.startswith("'agent': left out 1 of its texts") and "`vendor: true`" in line


def test_9_of_texts_that_are_a_frameworks_the_number_is_known(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(f'system = "{OWN}"')
    tools = {f"tool_{n}": {"in": "tool", "name": "t", "match": f"A framework's tool {n}.", "text": "x"} for n in "abc"}
    found = {"system": {"in": "system", "match": OWN, "text": OWN}, **tools}
    assert cut_slots(found, Sources([tmp_path]), vendor=False).left_out == 3
    assert cut_slots(found, Sources([tmp_path]), vendor=True).left_out == 0
    hub = Hub(*[cast(Any, None)] * 2, left_out={"agent": 3, "clerk": 0})
    assert [line.partition(" of")[0] for line in hub.warnings()] == ["'agent': left out 3"]


def test_5_slots_says_where_each_text_stands(tmp_path: Path) -> None:
    source = WITH_A_TOOL_OF_A_FRAMEWORK
    skill = tmp_path / ".claude/skills/look/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("Look twice at each letter.")
    path = write_agent(tmp_path, source, folder=".")
    arguments = [
        "agent",
        "slots",
        str(path),
        "--rows",
        "2",
        "--db",
        str(tmp_path / "r.db"),
        "--set",
        "lm=templates/instructions",
    ]
    found = CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path / "o.yaml")])
    assert found.exit_code == 0, found.output
    line = 1 + source[: source.index("RULES")].count("\n")
    assert f"nodes.agent.slots.system_2.text  (system message; agent.py:{line})\n    {OWN}\n" in found.stdout
    assert (
        "Left out, as they are not in the source (--vendor includes them): 1\n    tool end: \"The vendor's"
        in found.stdout
    )
    assert "(file .claude/skills/look/SKILL.md; by hand: is never written" in found.stdout
    written = (tmp_path / "o.yaml").read_text()
    assert "part: true" in written and "vendor" not in written
    shown = json.loads(CliRunner().invoke(cli, [*arguments, "--vendor", "--json"]).stdout)
    assert shown["slots"]["nodes.agent.slots.tool_end"]["where"].startswith("gateway only: is not in")
    assert shown["left_out"] == {}
    kept = yaml.safe_load(written)
    theirs = {"in": "tool", "name": "end", "match": "The vendor's own tool.", "text": "It ends."}
    kept["nodes"]["agent"]["slots"]["tool_end"] = theirs
    path.with_name("kept.yaml").write_text(yaml.safe_dump(kept))
    again = CliRunner().invoke(cli, [*arguments[:2], str(path.with_name("kept.yaml")), *arguments[3:]])
    assert "nodes.agent.slots.tool_end.text" in again.stdout and "Left out" not in again.stdout, "the user's choice"


TEXTS = [
    'My "printer" für\nOffice breaks ',
    "Where is my <parcel>\n& it's late ",
    'Pay "twice" in öre?\nno way ',
    "Login fails \\ 401\nsince today ",
]
FORMS: dict[str, Callable[[str], str]] = {
    "as JSON": lambda text: json.dumps({"ticket": text}),
    "as JSON with letters": lambda text: json.dumps({"ticket": text}, ensure_ascii=False),
    "stripped": str.strip,
    "escaped": html.escape,
    "quoted line by line": lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
    "cut": lambda text: f"{text[:20]}...",
    "in a tag": lambda text: f"<ticket>{html.escape(text, False)}</ticket>",
    "in other space": lambda text: " ".join(text.split()),
    "in small letters": str.lower,
    "by its words": lambda text: ", ".join(sorted(text.split())),
    "by its length": lambda text: str(len(text)),
}


@pytest.mark.parametrize("form", FORMS)
def test_7_a_template_around_an_input_in_any_form_is_a_slot(form: str) -> None:
    said = [
        f"Sort this ticket, of which kind is it?\n{FORMS[form](text)}\nAnswer with the letter alone." for text in TEXTS
    ]
    rows = [
        [
            Span(
                "agent",
                "External",
                {"text": text},
                calls=[
                    CallRecord(({"role": "user", "content": one},), Response("x"), "task", "m", False, 0.0, number=1)
                ],
            )
        ]
        for text, one in zip(TEXTS, said, strict=True)
    ]
    match = find_slots(rows, None)["user"]["match"]
    begin, _, end = match.partition("{{")
    assert begin.startswith("Sort this ticket, of which kind is it?\n") and end.endswith(
        "\nAnswer with the letter alone."
    )
    assert all(Template(match).match(one) is not None for one in said)
    if form.startswith(("as", "stripped", "escaped", "quoted", "cut", "in a tag")):
        assert "{{text}}" in match


def test_7_inputs_that_are_lists_are_holes() -> None:
    rows = []
    for words in ("where is it", "who pays it"):
        chat = [{"role": "user", "content": f"Hello, {words}?"}]
        said = f"Sort this conversation by its kind:\n{json.dumps(chat)}\nAnswer with the letter alone."
        call = CallRecord(({"role": "user", "content": said},), Response("x"), "task", "m", False, 0.0, number=1)
        rows.append([Span("agent", "External", {"chat": chat}, calls=[call])])
    assert "\n{{chat}}\n" in find_slots(rows, None)["user"]["match"]


def test_5_pieces_are_written_back_each_where_it_stands(tmp_path: Path) -> None:
    source = f'Agent(description="A clerk of the office.", instructions=["{OWN}", "{MORE}"])\n'
    slots = cut(tmp_path, {"agent.py": source}, f"A clerk of the office.\n- {OWN}\n- {MORE}")
    edits = []
    for slot in slots.values():
        changed = Slot.model_validate({**slot, "text": f"{slot['match']}\nIn two lines."})
        edits.append(find_text(changed, [tmp_path]).edits[0])
    space: dict[str, Any] = {"Agent": lambda **given: given}
    exec("agent = " + write_edits(edits)[tmp_path / "agent.py"], space)
    assert space["agent"]["instructions"] == [f"{OWN}\nIn two lines.", f"{MORE}\nIn two lines."]


def test_9_a_text_in_a_setting_of_the_node_is_the_users_and_changed_there_by_hand(tmp_path: Path) -> None:
    """As `claude -p TEXT --append-system-prompt OWN`, beside a CLAUDE.md: it was left out as the vendor's."""
    sent = {"system": {"in": "system", "match": f"You are the vendor's agent.\n\n{OWN}", "text": "x"}}
    file = {"file": {"in": "file", "name": "CLAUDE.md", "match": "x", "text": "x"}}
    for setting, more in (
        ("command", {"command": ["claude", "-p", "{q}", "--append-system-prompt", OWN]}),
        ("env", {"command": ["claude"], "env": {"RULES": OWN}}),
    ):
        node = External("n", ExternalConfig.model_validate({"signature": "q -> a", **more}), tmp_path)
        slots, left_out = cut_slots(sent | file, node.sources, vendor=False)
        assert (slots["system"]["match"], slots["system"]["part"], left_out) == (OWN, True, 0)
        found = find_text(Slot.model_validate({**slots["system"], "text": "Sort."}), node.sources)
        assert not found.edits and f"change `{setting}` in the workflow file by hand" in found.why
    asked = ExternalConfig.model_validate({"signature": "q -> a", "command": ["llm", "Which kind of post is {q} now?"]})
    said = {"user": {"in": "user", "match": "Which kind of post is {{q}} now?", "text": "x"}}
    assert (
        cut_slots(said, External("n", asked, tmp_path).sources, False).slots["user"]["match"] == said["user"]["match"]
    )
