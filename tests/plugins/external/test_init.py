"""`workbench agent init` (existing-agents.md, "Steps and words"): how an agent is fed and answers is found by starting
it."""

from __future__ import annotations

import csv
import importlib
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.helpers.external_agents import CLIENT

from workbench.cli import cli
from workbench.cli.trust import require_trust
from workbench.run import prepare
from workbench_external.init.columns import choose_columns
from workbench_external.init.hints import Hints, choose_environment, read_hints
from workbench_external.init.ways import options_in_help

SYSTEM = "You sort the post of an office by its desk."
#: The client of the tests' agents without its line that reads the row.
ASKS = CLIENT.rpartition("row = ")[0] + (
    f"\ndef ask(text, **more):\n    return chat([{{'role': 'system', 'content': {SYSTEM!r}}}, "
    "{'role': 'user', 'content': text}], **more)['content']\n"
)
QUICKSTARTS = Path(__file__).parents[3] / "contrib/agents/quickstarts"
DESKS = ("bills", "parcels", "repairs")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rows, as the current one; nothing is trusted, and no key of a model is known."""
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "label"])
        rows.writerows([n, f"About order {n} of last week: please help me.", DESKS[n % 3]] for n in range(12))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name in ("WORKBENCH_TRUST", "OPENAI_API_KEY", "OPENAI_BASE_URL", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def init(*words: str, data: str = "rows.csv") -> Result:
    return CliRunner().invoke(cli, ["agent", "init", "--data", data, *words])


def written(*words: str, source: str = "", file: str = "workflow.yaml", data: str = "rows.csv") -> dict[str, Any]:
    """What `init` writes, for an agent of one file where `source` is given."""
    if source:
        Path("agent.py").write_text(ASKS + source)
    done = init(*(words or ("agent.py",)), data=data)
    assert done.exit_code == 0, f"{done.output}{done.exception}"
    return yaml.safe_load(Path(file).read_text())


def node_of(*words: str, **more: Any) -> dict[str, Any]:
    return written(*words, **more)["nodes"]["agent"]


def test_the_file_says_what_was_found_and_is_trusted_as_it_is() -> None:
    tree = written(source="print(ask(sys.stdin.read()))")
    assert tree["lm"] == "openai/gpt-4o-mini" and tree["metric"] == "exact_match(label)"
    assert tree["data"]["file"] == "rows.csv" and tree["nodes"]["agent"] == {
        "external": "text -> label: Literal['bills', 'parcels', 'repairs']",
        "command": ["python", "agent.py"],
        "stdin": "text",
        "output": "text",
        "folder": ".",
        "calls": 3,
    }
    text = Path("workflow.yaml").read_text()
    assert "# slots: 1, found again" in text and f"agent.py:{ASKS[: ASKS.index(SYSTEM)].count(chr(10)) + 1}" in text
    assert require_trust(Path("workflow.yaml")).file, "nobody can be asked here"
    assert prepare("workflow.yaml")[2].spec.budget.calls >= prepare("workflow.yaml")[2].workflow.max_calls * 12
    assert "Next: workbench optimize workflow.yaml --out better.yaml" in init("agent.py", "--overwrite").output


WAYS = {
    "json": ("row = json.load(sys.stdin)\nprint(ask(row['text']))", "json", []),
    "argument": ("print(ask(sys.argv[1]))", "none", ["{text}"]),
    "option": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--text', required=True)\n"
        "print(ask(p.parse_args().text))",
        "none",
        ["--text", "{text}"],
    ),
    "input()": ("print(ask(input('letter: ')))", "text", []),
    "a file it names": ("print(ask(open('data/question.txt').read()))", "text", None),
    "a file as argument": ("print(ask(open(sys.argv[1]).read()))", "text", None),
    "a file by an option": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--out-file')\n"
        "p.add_argument('--in-file', required=True)\nprint(ask(open(p.parse_args().in_file).read()))",
        "text",
        None,
    ),
    "a file named above": ("PLACE = 'letter.txt'\nprint(ask(open(PLACE).read()))", "text", None),
    "two questions": ("print(input('Who? ') and ask(input('What? ')))", "none", None),
    "a variable": ("print(ask(os.environ.get('QUESTION', 'none')))", "none", []),
    "a conversation": ("while (said := input()) != 'quit':\n    print(ask(said))", "text", None),
    "either": ("print(ask(sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()))", "text", []),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_way_is_right_when_the_text_of_the_row_reaches_a_request(name: str) -> None:
    source, stdin, words = WAYS[name]
    node = node_of(source=source)
    assert node["stdin"] == stdin
    assert node["command"][0] == "sh" if words is None else node["command"] == ["python", "agent.py", *words]
    assert "NOT FOUND" not in Path("workflow.yaml").read_text()


def test_a_conversation_is_not_asked_about_an_empty_line() -> None:
    node = node_of(source=WAYS["a conversation"][0])
    assert node["calls"] == 3 and "it made 1" in Path("workflow.yaml").read_text()


def test_an_agent_that_reads_the_file_of_rows_is_told_to_read_one() -> None:
    Path("agent.py").write_text(ASKS + "for line in open('rows.csv').readlines()[1:]:\n    print(ask(line))")
    assert "It reads rows.csv itself" in str(getattr(init("agent.py").exception, "hint", ""))
    source = Path("rows.csv").read_text()  # under another name it is not kept from it
    Path("copy.csv").write_text(source)
    Path("agent.py").write_text(ASKS + "for line in open('copy.csv').readlines()[1:]:\n    print(ask(line))")
    done = init("agent.py")
    assert "reads their file itself" in done.stderr and "never with the text of the row" in str(done.exception)


def test_a_key_of_json_that_is_no_column_is_found_and_mapped() -> None:
    tree = written(source="data = json.load(sys.stdin)\nprint(ask(data['question']))")
    assert tree["nodes"]["agent"]["external"].startswith("question -> label")
    assert tree["data"]["fields"] == {"question": "text"}


def test_an_option_that_only_the_help_names_is_found() -> None:
    source = (
        "import argparse\np = argparse.ArgumentParser()\nfor name in ('let' + 'ter',):\n    p.add_argument('--' + name,"
        " required=True)\nprint(ask(p.parse_args().letter))"
    )
    assert node_of(source=source)["command"] == ["python", "agent.py", "--letter", "{text}"]
    assert options_in_help("  --loud  be loud\n  --letter TEXT  the letter [required]\n") == ["--letter"]


def test_a_place_in_the_command_is_the_users_word() -> None:
    Path("agent.py").write_text(ASKS + "print(ask(sys.argv[2]))")
    node = node_of("--", "python", "agent.py", "sort", "{text}")
    assert node["command"] == ["python", "agent.py", "sort", "{text}"] and node["stdin"] == "none"


ANSWERS = {
    "text": ("print(answer)", "text"),
    "line": ("print('sorting')\nprint(answer)", "line"),
    "json": ("print(json.dumps({'label': answer}))", "json"),
    "json:out.desk": ("print(json.dumps({'out': {'desk': answer, 'n': 1}}))", "json:out.desk"),
    "file": ("open('answer.txt', 'w').write(answer)", "file:answer.txt"),
    "words": ("print('a log')\nprint('The desk is:', answer)", "line"),
    "asked as JSON": ("print(json.loads(answer)['desk'])", "text"),
    "asked in tags": ("print(answer.partition('<desk>')[2].partition('</desk>')[0] or sys.exit(3))", "text"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_is_found_where_the_stand_ins_answer_came_out(name: str) -> None:
    form = """Answer: {"desk": "..."} or <desk>...</desk>. """
    ends, output = ANSWERS[name]
    assert node_of(source=f"answer = ask({form!r} + sys.stdin.read())\n{ends}")["output"] == output


@pytest.mark.parametrize(
    ("beside", "kind"), [("note", {"type": "string", "enum": list(DESKS)}), ("reason", {"type": "string"})]
)
def test_the_answer_in_a_schema_is_told_from_what_stands_beside_it(beside: str, kind: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {beside: {"type": "string"}, "kind": kind}}
    form = {"type": "json_schema", "json_schema": {"name": "sorted", "schema": schema}}
    assert node_of(source=f"print(ask(sys.stdin.read(), response_format={form!r}))")["output"] == "json:kind"


def test_a_tool_is_called_only_where_the_request_demands_it() -> None:
    tools = "[{'type': 'function', 'function': {'name': n, 'description': 'A tool of the office, ' + n, 'parameters': "
    tools += "{'type': 'object', 'properties': {'desk': {'type': 'string'}}}}} for n in ('send_it', 'final_answer')]"
    source = f"tools = {tools}\nsaid = ask(sys.stdin.read(), tools=tools) or sys.exit('a tool was called')\n"
    source += "first = [{'role': 'user', 'content': said}]\n"
    source += "called = chat(first, tools=tools, tool_choice='required')['tool_calls'][0]['function']\n"
    node = node_of(source=f"{source}print(called['name'])\nprint(json.loads(called['arguments']).get('desk'))")
    assert node["output"] == "line" and node["calls"] == 8
    assert "NOT FOUND" not in Path("workflow.yaml").read_text()


def test_an_answer_that_is_found_nowhere_is_said() -> None:
    Path("agent.py").write_text(ASKS + "ask(sys.stdin.read())\nprint('done')")
    done = init("agent.py")
    assert done.exit_code == 0 and "NOT FOUND: a guess" in done.stderr
    assert "# NOT FOUND" in Path("workflow.yaml").read_text()


def test_a_function_is_called_by_its_parameters() -> None:
    node = node_of("agent.py:sort", source="async def sort(text, loud=False):\n    return {'label': ask(text)}")
    assert node["python"] == "agent.py:sort" and "command" not in node and node["output"] == "json"


def test_files_beside_the_agent_are_read_wherever_it_reads_them() -> None:
    Path("src").mkdir()
    Path("src/beside.txt").write_text("Beside. ")
    Path("here.txt").write_text("Here. ")
    Path("src/agent.py").write_text(
        ASKS + "from pathlib import Path\nbeside = Path(__file__).with_name('beside.txt').read_text()\n"
        "print(ask(beside + open('here.txt').read() + sys.stdin.read()))"
    )
    node = node_of("--", "python", "src/agent.py")
    assert node["folder"] == "." and node["command"] == ["python", "src/agent.py"]
    # Named by its file alone, it is tried in its own folder first, and the workflow file lies there.
    text = Path("workflow.yaml").read_text()
    assert "; src/agent.py:" in text, "the place of a slot is told with its folder"
    assert "# Written by `workbench agent init --data rows.csv -- python src/agent.py`" in text
    alone = written("src/agent.py", file="src/workflow.yaml")
    assert alone["nodes"]["agent"]["folder"] == ".." and alone["data"]["file"] == "../rows.csv"


def test_variables_of_its_own_lead_to_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_BASE_URL", "http://127.0.0.1:9/paid")
    monkeypatch.setenv("STYLE", "short")
    source = "os.environ['OPENAI_BASE_URL'] = os.environ['LLM_BASE_URL']\nos.environ['OPENAI_API_KEY'] = "
    node = node_of(source=f"{source}os.environ['LLM_API_KEY']\nprint(ask(os.environ['STYLE'] + sys.stdin.read()))")
    assert node["env"] == {"STYLE": "$STYLE", "LLM_BASE_URL": "$OPENAI_BASE_URL", "LLM_API_KEY": "$OPENAI_API_KEY"}


def test_a_file_in_a_folder_that_is_missing_is_refused_before_any_start() -> None:
    Path("agent.py").write_text(ASKS + "print(ask(sys.stdin.read()))")
    done = init("agent.py", "--out", "none/w.yaml")
    assert "there is no folder none" in str(done.exception) and not done.stderr


def test_the_model_of_embeddings_is_found() -> None:
    source = (
        "import urllib.request\ntext = sys.stdin.read()\n"
        "body = json.dumps({'model': 'small', 'input': [text]}).encode()\n"
        "key = {'Content-Type': 'application/json', 'Authorization': f\"Bearer {os.environ['OPENAI_API_KEY']}\"}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/embeddings'\n"
        "urllib.request.urlopen(urllib.request.Request(url, body, key)).read()\nprint(ask(text))\n"
    )
    assert node_of(source=source)["embedder"] == "openai/small"


def test_keys_of_providers_are_never_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "SEARCH_API_KEY"):
        monkeypatch.setenv(name, "k")
    assert choose_environment(Hints(variables=("GEMINI_API_KEY", "SEARCH_API_KEY", "OPENAI_API_KEY"))) == {
        "SEARCH_API_KEY": "$SEARCH_API_KEY"
    }


def test_a_program_of_any_kind_is_started(place: Path) -> None:
    Path("agent.py").write_text(ASKS + "print(ask(sys.stdin.read()))")
    script = place / "agent.sh"
    script.write_text("#!/bin/sh\ncat | python agent.py\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert node_of("--", "./agent.sh")["command"] == ["./agent.sh"]
    assert node_of("agent.sh", "--overwrite")["command"] == ["bash", "agent.sh"]


REFUSED = {
    "constant": (
        "print(ask('A letter that stands here.'))",
        "never with the text of the row",
        "read stdin or sys.argv",
    ),
    "no request": ("print('bills')", "no request reached the gateway", "OPENAI_BASE_URL"),
    "address": ("base_url = 'http://127.0.0.1:9/v1'\nprint('x')", "no request", "agent.py:"),
    "exit": (
        "import no_such_module",
        'asked a model: the agent ended with exit code 1; it said: File "agent.py", line \\d+, in <module> '
        "ModuleNotFoundError: No module named 'no_such_module'\n",
        "by hand",
    ),
    "hangs": ("import time\ntime.sleep(60)", "asked no model: the agent took more than 1 s\n", "--timeout"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_agent_of_which_no_file_can_be_made_is_told_why(name: str) -> None:
    source, message, hint = REFUSED[name]
    Path("agent.py").write_text(ASKS + source)
    done = init("agent.py", "--timeout", "1" if name == "hangs" else "60")
    error: Any = done.exception
    assert done.exit_code != 0 and not Path("workflow.yaml").exists()
    with pytest.raises(type(error), match=message):
        raise error
    assert hint in error.hint
    warned = "(http://127.0.0.1:9/v1) is an address of its own: requests to it bypass the gateway" in done.stderr
    assert warned == (name == "address")


def test_a_command_that_is_not_there_and_files_that_are_there_are_refused() -> None:
    assert "no program 'no-such'" in str(init("--", "no-such", "agent.py").exception)
    Path("agent.py").write_text("x")
    Path("workflow.yaml").write_text("mine: true")
    assert "that file exists" in str(init("agent.py").exception)
    assert Path("workflow.yaml").read_text() == "mine: true"
    Path("agent.xyz").write_text("x")
    assert "not known what starts this file" in str(init("agent.xyz", "--overwrite").exception)


@pytest.mark.parametrize(
    ("rows", "label", "kind", "metric"),
    [
        ([{"q": f"what is {n}", "answer": str(n)} for n in range(9)], "answer", "number", "numeric(answer)"),
        ([{"Answer": n % 2 == 0, "q": "why"} for n in range(9)], "Answer", "choice", "exact_match(Answer)"),
        ([{"q": "why", "z": f"because of {n} reasons"} for n in range(9)], "z", "text", "f1(z)"),
        ([{"q": "why", "right one": "ab"[n % 2]} for n in range(9)], "right one", "choice", None),
    ],
)
def test_the_label_its_type_and_the_metric_come_from_the_rows(
    rows: list[dict[str, Any]], label: str, kind: str, metric: str | None
) -> None:
    found = choose_columns(rows)
    assert (found.label, found.answers.kind) == (label, kind)
    assert found.metric == (metric or "exact_match(right_one, target='right one')")


def test_rows_without_right_answers_are_refused() -> None:
    Path("one.jsonl").write_text(json.dumps({"text": "a"}))
    Path("agent.py").write_text("x")
    assert "one column, text, and no right answers" in str(init("agent.py", data="one.jsonl").exception)
    assert "no column 'labl'" in str(init("agent.py", "--label", "labl").exception)


def test_hints_are_read_off_sources_of_several_languages(place: Path) -> None:
    script = place / "agent.mjs"
    script.write_text("const { question, when: date } = JSON.parse(readFileSync(0));\nprocess.env.MY_URL")
    hints = read_hints(script, place)
    assert hints.stdin and hints.json and not hints.arguments and hints.variables == ("MY_URL",)
    assert {"question", "when"} <= {*hints.keys}
    script.write_text("const BASE = process.env.MY_URL;\nfetch(`${BASE}/chat`)")
    assert read_hints(script, place).variables == ("MY_URL",)
    shell = place / "agent.sh"
    shell.write_text('curl "${MY_ENDPOINT}/chat"')
    assert read_hints(shell, place).variables[-1] == "MY_ENDPOINT"


@pytest.mark.slow
def test_three_commands_lead_to_a_better_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prints the next one, which runs as it is printed; nobody is asked. The server knows one planted gain."""
    for package in ("openai", "anthropic"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(QUICKSTARTS))
    planted = importlib.import_module("planted")
    rows = [{"text": f"row {n}: a {'abcd'[n % 4]}-thing", "label": "abcd"[n % 4]} for n in range(48)]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("agent.py").write_text(ASKS + "print(ask(sys.stdin.read()))")
    with planted.serving(planted.Planted()) as server:
        for name, value in server.items():
            monkeypatch.setenv(name, value)
        command, shown = "workbench agent init agent.py --data rows.jsonl", list[str]()
        while command:
            done = CliRunner().invoke(cli, command.split()[1:])
            assert done.exit_code == 0, f"{command}: {done.output}{done.exception}"
            shown.append(command)
            found = re.search(r"(?m)^Next: (workbench .+)$", done.output)
            command = found[1] if found else ""
    assert [words.split()[1:3] for words in shown] == [
        ["agent", "init"],
        ["optimize", "workflow.yaml"],
        ["agent", "apply"],
    ]
    assert planted.PLANTED in Path("agent.py").read_text()


def test_security_an_agent_is_tried_without_the_rows_beside_it() -> None:
    """As it will be run: with their right answers it could be found to give them."""
    source = "import os\nassert not os.path.exists('rows.csv')\nprint(ask(sys.argv[1]))"
    assert written(source=source)["nodes"]["agent"]["folder"] == "."


def test_what_a_prompt_lists_is_no_input_and_the_choice_of_the_label_is_told(tmp_path: Path) -> None:
    """A second column of answers, which the agent is never given, and whose values its prompt names."""
    (tmp_path / "rows.csv").write_text(
        "text,verdict,category,id\n"
        + "".join(f"About order {n} of last week,{DESKS[n % 3]},web{n % 2},{700 + n}\n" for n in range(12))
    )
    source = "row = json.load(sys.stdin)\nprint(ask(f\"bills, parcels or repairs? {row['id']}: {row['text']}\"))"
    assert written(source=source)["nodes"]["agent"]["external"] == "text, id -> category: Literal['web0', 'web1']"
    told = (
        "the right answers: 'category', the column is named like one; 'verdict' has few values, too (--label verdict)"
    )
    assert told in init("agent.py", "--overwrite").stderr
    assert "--label verdict" not in init("agent.py", "--overwrite", "--label", "category").stderr


def test_rows_without_a_header_are_told(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("".join(f"About order {n},{DESKS[n % 3]}\n" for n in range(12)))
    (tmp_path / "agent.py").write_text(f"{ASKS}print(ask(sys.stdin.read()))")
    assert "seems to have no header, since 'bills' is the name of a column and a value in it" in init("agent.py").stderr


def test_too_few_rows_are_told_before_any_start(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,b\nc,d\n")
    (tmp_path / "agent.py").write_text("open('started', 'w')")
    done = init("agent.py")
    assert "rows.csv has 2 rows\n  train, val and test need 4 at least." in str(done.exception)
    assert not list(tmp_path.rglob("started")) and not done.stderr


def test_a_failed_start_is_a_line_with_its_error_alone() -> None:
    """The same failure in another folder is not repeated, and with -q there is none."""
    Path("agent.py").write_text(ASKS + "raise ValueError('no ' + sys.argv[1][:0] + 'config ' + 'x' * 200)")
    done = init("agent.py")
    lines = done.stderr.splitlines()
    assert f"the last argument: ValueError: no config {'x' * 78}..." in lines, lines
    assert len(lines) == len({*lines}) and not any("it said" in line for line in lines)
    assert init("agent.py", "-q").stderr == ""


def test_a_label_that_looks_like_the_input_is_doubted() -> None:
    Path("agent.py").write_text(ASKS + "print(ask(sys.argv[1]))")
    told = init("agent.py", "--label", "text").stderr.splitlines()[0]
    assert told.startswith("the right answers: 'text', named by --label; its texts are the longest, as of an input")
