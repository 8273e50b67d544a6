"""Forging with proposers that write right, wrong, slow and hostile code, on mbpp, gsm8k and bbh, and on small data.

No model is behind it: a script plays the proposer and gives the programs of a pool in order. The right ones are the
data's own (mbpp) or written here (gsm8k, bbh), so this tests the workbench and says nothing about any model.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.hostile import SNOOP, Hostile, hostile, written
from tests.helpers.scripted import Script
from tests.helpers.sqlite import connect
from tests.plugins.sandbox.test_sandbox import _kernel_features

from workbench.lm import Request
from workbench.proof import Report
from workbench.run import Options, optimize
from workbench_forge import optimizer as forge_optimizer
from workbench_sandbox.linux import LinuxSandbox

pytestmark = pytest.mark.skipif(bool(_kernel_features()), reason=_kernel_features() or "-")

ROOT = Path(__file__).parents[3]
DATA = next((p for p in (ROOT / "shared/data", ROOT.parent / "shared/data") if p.is_dir()), None)
real = pytest.mark.skipif(DATA is None, reason="the shared data are not here")

CANARY = "CANARY" + "-7c1e09d2b5"
CUT = 1.5  # seconds that a program may take: on a busy machine those that fail otherwise took more than 0.6


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Hostile]]:
    """Canaries in a file that everyone may read and in the environment, and the hostile functions that are after
    them."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        secret = Path(folder, "secret")
        secret.write_text(f"key: {CANARY}\n")
        secret.chmod(0o644)
        for name in ("WORKBENCH_TEST_SECRET", "OPENAI_API_KEY"):
            monkeypatch.setenv(name, CANARY)
        yield hostile(str(secret), "WORKBENCH_TEST_SECRET", os.getpid())
        assert os.listdir(folder) == ["secret"], "something was written beside it"


def leaked(folder: Path, report: Report) -> list[str]:
    """Where a canary stands: in any file that the run left, or in its report."""
    said = json.dumps(report.as_dict(), default=str).encode() + "\n".join(report.lines()).encode()
    places = {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()} | {"report": said}
    return [name for name, text in places.items() if any(form in text for form in written(CANARY))]


def rows_of(name: str, split: str) -> list[dict[str, Any]]:
    assert DATA is not None
    return [json.loads(line) for line in (DATA / name / f"{split}.jsonl").read_text().split("\n") if line]


def forge(
    folder: Path,
    node: dict[str, Any],
    splits: dict[str, list[dict[str, Any]]],
    say: Callable[[Request], str],
    parameters: dict[str, Any],
    metric: str = "exact_match(answer)",
    **constants: int,
) -> tuple[Report, Script]:
    """Each proposal is one attempt. constants: others of the optimizer, e.g. EDITS."""
    for name, rows in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "forged",
                "lm": {"model": "openai/none", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
                "data": {n: f"{n}.jsonl" for n in splits},
                "metric": metric,
                "nodes": {"solve": node},
                "optimize": [{"forge": parameters}],
                "budget": {"calls": 5000},
            }
        )
    )
    script = Script(say)
    options = Options(out=str(folder / "out.yaml"), keep_unproved=True, allow_unproved=True)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"ATTEMPTS": 1, **constants}.items():
            patched.setattr(forge_optimizer, name, value)
        report = optimize(file, database=folder / "run.db", pool=script, options=options)
    assert report.status == "finished", report.error
    return report, script


def outcomes(folder: Path) -> dict[str, set[str]]:
    """How the calls of each program ended, by source, as the run database has them."""
    found: dict[str, set[str]] = {}
    with closing(connect(folder / "run.db")) as db:
        for request, response in db.execute("select request, response from calls where kind = 'code'"):
            found.setdefault(json.loads(request)[0][0].strip(), set()).add(json.loads(response)["kind"])
    return found


def check_programs(
    folder: Path,
    trap: dict[str, Hostile],
    signature: str,
    function: str,
    splits: dict[str, list[dict[str, Any]]],
    right: str,
    wrong: Sequence[str] = (),
    metric: str = "exact_match(answer)",
    least: float = 1.0,
) -> None:
    """Forge one program from a pool: the right one wins, each hostile one is recorded as what it was, nothing leaks."""
    parameters = ", ".join(re.findall(r"(\w+)(?:\s*:[^,]*)?(?:,|$)", signature.split("->")[0].strip()))
    enemies = {h.source(function, parameters): h for h in trap.values()}
    pool = [*enemies, *wrong]
    random.Random(function).shuffle(pool)
    pool.append(right)  # the last one: it ends the search
    left = iter(pool)
    start = f"def {function}({parameters}):\n    return None\n"
    node = {"code": signature, "source": start, "function": function, "timeout": CUT}
    begun = time.monotonic()
    report, _ = forge(
        folder,
        node,
        splits,
        lambda r: f"```python\n{next(left)}\n```",
        {"samples": len(pool)},
        metric,
        FINALISTS=3,
    )
    seconds = time.monotonic() - begun
    assert report.winner.get("nodes.solve.source").strip() == right.strip()
    score = report.best["test"]["score"]  # none where nothing helped: the sealed rows stay unused
    assert score >= least if report.changes else least == 0.0
    assert right.strip().splitlines()[-1].strip() in (folder / "out.yaml").read_text()
    recorded = outcomes(folder)
    for source, enemy in enemies.items():
        assert recorded[source.strip()] <= set(enemy.kinds), (source, recorded[source.strip()])
    slow = sum("timeout" in h.kinds for h in trap.values()) * len(splits["train"]) * CUT
    assert seconds < 20 + 2 * slow, f"{seconds:.1f} s: the slow ones were not cut"
    assert leaked(folder, report) == []


# mbpp


def mbpp_tasks() -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """(function, gold program, rows a0, a1, ... and answer) of the tasks whose three asserts JSON can carry."""
    for row in rows_of("mbpp", "train"):
        rows, name = [], ""
        try:
            for text in row["labels"]["tests"]:
                test: Any = ast.parse(text.strip()).body[0].test  # type: ignore[attr-defined]
                assert isinstance(test.ops[0], ast.Eq) and isinstance(test.left, ast.Call)
                values = [ast.literal_eval(a) for a in [*test.left.args, test.comparators[0]]]
                assert json.loads(json.dumps(values)) == values and type(values[-1]) in (int, str, bool, list)
                name = ast.unparse(test.left.func)
                rows.append({**{f"a{i}": v for i, v in enumerate(values[:-1])}, "answer": values[-1]})
        except (AssertionError, AttributeError, ValueError, SyntaxError, TypeError):
            continue
        if len({json.dumps(r["answer"]) for r in rows}) == 3 == len({json.dumps(sorted(r)) for r in rows}) + 2:
            yield name, row["labels"]["canonical_solution"].replace("\r\n", "\n"), rows


def renamed(name: str, gold: str, row: dict[str, Any]) -> tuple[str, str]:
    """The gold program behind a function whose parameters are the fields of the rows, and its signature."""
    fields = [f for f in row if f != "answer"]
    right = f"{gold}\n\ndef solve({', '.join(fields)}):\n    return {name}({', '.join(fields)})\n"
    types = ", ".join(f"{f}: Any" for f in fields)
    return right, f"{types} -> answer: {type(row['answer']).__name__}"


@pytest.mark.slow
@real
@pytest.mark.parametrize("index", range(4))
def test_mbpp_keeps_the_gold_program(index: int, tmp_path: Path, trap: dict[str, Hostile]) -> None:
    name, gold, rows = list(mbpp_tasks())[index * 40]
    right, signature = renamed(name, gold, rows[0])
    fields = signature.split(" ->")[0].replace(": Any", "")
    learned = f"def solve({fields}):\n    return {rows[0]['answer']!r}\n"  # right on train, by heart
    splits = {n: [r] for n, r in zip(("train", "val", "test"), rows, strict=True)}
    check_programs(tmp_path, trap, signature, "solve", splits, right, [learned])


# bbh

BOOLEAN = """
def solve(input):
    import ast
    def value(node):
        if isinstance(node, ast.BoolOp):
            values = [value(v) for v in node.values]
            return all(values) if isinstance(node.op, ast.And) else any(values)
        return not value(node.operand) if isinstance(node, ast.UnaryOp) else bool(node.value)
    return str(value(ast.parse(input.removesuffix(" is").strip(), mode="eval").body))
"""
WORDS = """
def solve(input):
    return " ".join(sorted(input.split("List:")[1].lower().split()))
"""
COUNTING = """
def solve(input):
    import re
    numbers = dict(zip("two three four five six seven eight nine ten".split(), range(2, 11)))
    things = re.split(r",\\s*(?:and\\s+)?|\\s+and\\s+", re.search(r"I have (.*?)\\. How", input).group(1))
    return str(sum(numbers.get(thing.split()[0], 1) for thing in things))
"""


@pytest.mark.slow
@real
@pytest.mark.parametrize(
    ("task", "right", "wrong", "least"),
    [
        ("boolean_expressions", BOOLEAN, "def solve(input):\n    return 'True'", 1.0),
        ("word_sorting", WORDS, "def solve(input):\n    return input.split('List:')[1].strip()", 1.0),
        ("object_counting", COUNTING, "def solve(input):\n    return str(input.count(',') + 1)", 0.6),
    ],
)
def test_bbh_keeps_the_program_that_generalises(
    task: str, right: str, wrong: str, least: float, tmp_path: Path, trap: dict[str, Hostile]
) -> None:
    """object_counting also asks for the vegetables among other things: that program is not right for all rows."""
    rows = {
        s: [
            {"input": r["inputs"]["input"], "answer": r["labels"]["target"]}
            for r in rows_of("bbh", s)
            if r["meta"]["task"] == task
        ]
        for s in ("train", "dev")
    }
    splits = {"train": rows["train"][:4], "val": rows["train"][10:40], "test": rows["dev"]}
    check_programs(
        tmp_path, trap, "input -> answer", "solve", splits, right, [wrong], "normalized_match(answer)", least
    )


# The same on small data of our own


def made_rows(seed: int, count: int) -> list[dict[str, Any]]:
    draw = random.Random(f"made {seed}")
    rows = [{"text": "".join(draw.choices("abcdexyz", k=9)), "factor": draw.randint(2, 9)} for _ in range(count)]
    return [{**r, "answer": f"{r['text'][::-1]}/{r['factor'] * len(set(r['text']))}"} for r in rows]


MADE = "def solve(text, factor):\n    return f'{text[::-1]}/{factor * len(set(text))}'\n"
NEAR = "def solve(text, factor):\n    return f'{text[::-1]}/{factor * len(text)}'\n"


@pytest.mark.slow
def test_made_data_keep_the_right_program(tmp_path: Path, trap: dict[str, Hostile]) -> None:
    splits = {"train": made_rows(1, 3), "val": made_rows(2, 20), "test": made_rows(3, 30)}
    check_programs(tmp_path, trap, "text, factor: int -> answer", "solve", splits, MADE, [NEAR])


@pytest.mark.fault("hostile-code")
@pytest.mark.slow
def test_hostile_programs_alone_change_nothing(tmp_path: Path, trap: dict[str, Hostile]) -> None:
    """The negative control: nothing in the pool helps, so nothing is claimed."""
    splits = {"train": made_rows(1, 2), "val": made_rows(2, 6), "test": made_rows(3, 6)}
    check_programs(
        tmp_path,
        trap,
        "text, factor: int -> answer",
        "solve",
        splits,
        "def solve(text, factor):\n    return None",
        least=0.0,
    )


def test_the_hostile_programs_do_find_the_canary_where_nothing_holds_them(trap: dict[str, Hostile]) -> None:
    """The control of all the above: with resource limits alone the same functions bring the secret back."""

    async def main() -> list[str]:
        sandbox = LinuxSandbox("limits-only")
        sandbox_secret = [h for n, h in trap.items() if n.startswith("secret file")]
        try:
            return [str(await sandbox.call(h.source("f", ""), "f", {})) for h in sandbox_secret]
        finally:
            await sandbox.aclose()

    for said in asyncio.run(main()):
        assert any(form.decode() in said for form in written(CANARY))


@pytest.mark.fault("hostile-code")
@pytest.mark.slow
def test_labels_never_enter_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the way in, nor anywhere that the child can reach: it tells all that it finds, and a label is not
    there."""
    sent: list[dict[str, Any]] = []
    told: list[str] = []
    call = LinuxSandbox.call

    async def watched(self: LinuxSandbox, source: str, function: str, arguments: Any, **more: Any) -> Any:
        outcome = await call(self, source, function, arguments, **more)
        if function == "solve":
            sent.append({"source": source, "arguments": dict(arguments)})
            told.append(str(outcome.value or outcome.message))
        return outcome

    monkeypatch.setattr(LinuxSandbox, "call", watched)
    snoop = Hostile(SNOOP, ("ok",)).source("solve", "text, factor")
    answers = iter([snoop, MADE])
    splits = {"train": made_rows(1, 8), "val": made_rows(2, 8), "test": made_rows(3, 8)}
    labels = [r["answer"] for rows in splits.values() for r in rows]
    node = {"code": "text, factor: int -> answer", "source": "def solve(text, factor):\n    return text\n"}
    report, _ = forge(tmp_path, node, splits, lambda r: next(answers), {"samples": 2})
    assert report.winner.get("nodes.solve.source").strip() == MADE.strip()
    assert sent and all(set(s["arguments"]) == {"text", "factor"} for s in sent)
    assert not any(label in json.dumps(s) for s in sent for label in labels)
    snooped = [t for t in told if "solve.text=" in t]
    assert len(snooped) >= 8, "the snoop ran and told what it found"
    assert not any(label in t for t in snooped for label in labels)
    texts = [r["text"] for rows in splits.values() for r in rows]
    for said in snooped:
        own = re.search(r"solve\.text='(\w+)'", said)
        assert own and not [t for t in texts if t != own[1] and t in said], "it sees no other example either"


# gsm8k: an agent with forged arithmetic

CALCULATE = """
import ast, operator
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}

def calculate(expression):
    def value(node):
        if isinstance(node, ast.BinOp):
            return OPERATIONS[type(node.op)](value(node.left), value(node.right))
        return -value(node.operand) if isinstance(node, ast.UnaryOp) else node.value
    found = value(ast.parse(expression.replace(",", ""), mode="eval").body)
    return int(found) if found == int(found) else round(found, 6)
"""


def added(name: str, source: str, result: Any = 12, example: str = "3*4") -> str:
    return json.dumps(
        {
            "action": "add",
            "name": name,
            "description": "arithmetic",
            "source": source,
            "example": {"arguments": {"expression": example}, "result": result},
        }
    )


def reading_agent(plans: dict[str, str], proposals: Sequence[str]) -> Callable[[Request], str]:
    """A stand-in for an agent that knows which sum a question asks for and cannot compute; and a proposer."""
    left = iter(proposals)

    def say(request: Request) -> str:
        said = "\n".join(str(m["content"]) for m in request.messages)
        if "You improve the tools of an agent" in said:
            return next(left, '{"action": "terminate"}')
        last = str(request.messages[-1]["content"])
        if last.startswith("result: "):
            return f"answer: {last.removeprefix('result: ')}"
        tools = [line[2:].split("(")[0] for line in said.splitlines() if line.startswith("- ")]
        if not tools or last.startswith("error: "):
            return "answer: -1"
        question = last.split("question: ")[1].strip()
        return "call: " + json.dumps({"tool": tools[-1], "arguments": {"expression": plans[question]}})

    return say


def check_functions(
    folder: Path, trap: dict[str, Hostile], splits: dict[str, list[dict[str, Any]]], plans: dict[str, str]
) -> None:
    """One round a proposal: the right function is kept; hostile ones end at their own example and cost no task call."""
    enemies = {n: h for n, h in trap.items() if "timeout" not in h.kinds or n == "endless loop"}
    bad = [added(f"f{i}", h.source(f"f{i}", "expression")) for i, h in enumerate(enemies.values())]
    wrong = added("wrong", "def wrong(expression):\n    return 0.125", 0.125)
    imports = added("loud", "import os\ndef loud(expression):\n    return 12")
    right = added("calculate", CALCULATE)
    pool = [*bad[::2], imports, wrong, '{"action": "terminate"}', *bad[1::2], right]
    begun = time.monotonic()
    report, script = forge(
        folder,
        {"agent": "question -> answer: float", "instructions": "Solve it.", "max_steps": 3},
        splits,
        reading_agent(plans, pool),
        {"steps": 3, "batch": 5, "patience": 3},
        "numeric(answer)",
        EDITS=20,
    )
    functions = report.winner.get("nodes.solve.functions")
    assert [f["name"] for f in functions] == ["calculate"] and functions[0]["source"].strip() == CALCULATE.strip()
    assert report.best["test"]["score"] == 1.0
    assert time.monotonic() - begun < 30
    task = [r for r in script.requests if "You improve" not in str(r.messages[0]["content"])]
    assert not any(re.search(r"- (f\d+|loud)\(", str(r.messages[0]["content"])) for r in task)
    assert leaked(folder, report) == []


@pytest.mark.slow
@real
def test_gsm8k_keeps_the_calculator(tmp_path: Path, trap: dict[str, Hostile]) -> None:
    """Questions whose worked solution is one sum: the marks <<48/2=24>> say which."""
    plans, rows = {}, []
    for row in rows_of("gsm8k", "train"):
        sums = re.findall(r"<<([^=<>]+)=([^<>]+)>>", row["labels"]["solution"])
        question, answer = " ".join(row["inputs"]["question"].split()), row["labels"]["answer"]
        if sums and sums[-1][1] == answer and re.fullmatch(r"[\d.+\-*/()]+", sums[-1][0]):
            plans[question] = sums[-1][0]
            rows.append({"question": question, "answer": float(answer)})
    splits = {"train": rows[:20], "val": rows[20:60], "test": rows[60:160]}
    check_functions(tmp_path, trap, splits, plans)


@pytest.mark.slow
def test_made_sums_keep_the_calculator(tmp_path: Path, trap: dict[str, Hostile]) -> None:
    draw = random.Random("sums")
    plans, rows = {}, []
    for _ in range(45):
        a, b, mark = draw.randint(2, 99), draw.randint(2, 99), draw.choice("+-*")
        question = f"What is {a} {mark} {b}?"
        plans[question] = f"{a}{mark}{b}"
        rows.append({"question": question, "answer": float({"+": a + b, "-": a - b, "*": a * b}[mark])})
    check_functions(tmp_path, trap, {"train": rows[:10], "val": rows[10:25], "test": rows[25:]}, plans)
