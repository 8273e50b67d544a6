"""What a scripted model says in the workflows of the gallery that have the form of a benchmark (`gallery_scripts`)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.helpers.gallery_speech import Case, call, code, own_rows

GALLERY = Path(__file__).parents[2] / "workflows" / "gallery"
Found = re.Match[str]


def _called(found: Found) -> list[str]:
    """The tools that the history shows as called."""
    return re.findall(r'"tool": "(\w+)"', found.string.partition("history: ")[2])


PLAN_ENDS = "        results.append(outcome)\n        if outcome is None:\n            break\n        last = outcome"
#: What mends each issue.
MENDS = {
    "retry": ("range(attempts)", "range(attempts - 1)"),
    "history": ("[:most]", "[-most:]"),
    "names": ("one == other", "one.lower() == other.lower()"),
    "budget": ("spent + 1 < budget", "spent + 1 <= budget"),
    "arguments": (" if v}", "}"),
    "stream": ("[:-1]", ""),
    "tokens": (" if m['role'] != 'system'", ""),
    "plan": ("len(steps) <= 1", "not steps"),
    "agent": ("= notes\n", "= [*notes]\n"),
    "fences": ("text[3:-3]", "text.partition('\\n')[2].rpartition('```')[0]"),
    "stopping": ("at + len(stop)", "at"),
    "chunks": ("len(words) // size", "-(-len(words) // size)"),
    "router": ("min(models,", "min((model for model in models if model['window'] >= tokens),"),
    "voting": ("Counter(votes).most_common(1)[0][0]", "next(iter(Counter(filter(None, votes))), None)"),
    "runner": (
        "        if outcome is not None:\n            last = outcome\n        results.append(outcome)",
        PLAN_ENDS,
    ),
    "keys": (" if isinstance(settings[name], str)", ""),
}


def mend(found: Found) -> str:
    """Read the file, write it mended, submit: each step by what the history shows was done."""
    listed = re.findall(r"(\w+)\.py", re.findall(r"Files: (.*)", found.string)[0]) if "Files: " in found.string else []
    file = next((name for name in listed if name in MENDS), "retry")
    said = _called(found)
    if not said:
        return call("read", path=f"{file}.py")
    if said[-1] == "write":
        return call("submit")
    source = found.string.rpartition("observation: ")[2].rpartition("\naction:")[0]
    return call("write", path=f"{file}.py", text=source.replace(*MENDS[file], 1))


def experiment(found: Found) -> str:
    """Read the table, and split it by the column and the edge that decide."""
    said = _called(found)
    if "write" in said:
        return call("submit")
    if "read" not in said:
        return call("read", path="train.csv")
    lines = [line.split(",") for line in re.findall(r"(?m)^\d+,\d+,\d+,(?:yes|no)$", found.string)]
    columns = ("height", "weight", "age")
    tried = [
        (sum((float(line[n]) > int(at[n])) == (line[3] == "yes") for line in lines), columns[n], at[n])
        for n in range(3)
        for at in lines
    ]
    _, name, edge = max(tried)
    text = f"def predict(row):\n    return 'yes' if float(row['{name}']) > {edge} else 'no'\n"
    return call("write", path="model.py", text=text)


def plan_trip(found: Found) -> str:
    """By the notes, if they are to be read; else by what one would guess."""
    said = _called(found)
    if "write" in said:
        return call("submit")
    if found.re.pattern == "observation" and "read" not in said:
        return call("read", path="notes.txt")
    notes = re.findall(r"observation: (.*\bon the \d+th.*)", found.string, re.IGNORECASE)
    return call("write", path="trip.md", text=f"By train: {notes[0] if notes else 'from home to the sea'}\n")


def grade_trip(rubric: str) -> Any:
    """Full marks for a trip that has all names and days of the rubric."""
    wanted = re.findall(r"\b[A-Z]\w+|\d+th", rubric)
    return lambda found: f"score: {10 * all(word in found[1] for word in wanted if word != '19th')}"


def take_out(found: Found) -> str:
    return (re.findall(r"shop in (\w+)", found.string) or ["no city"])[0]


def check_point(found: Found) -> str:
    """Of questions, by the words that an answer has: an apology, the card, the number."""
    answer, asked = found.string.split("\n\n", 1)
    words = {
        "complain": "Sorry",
        "apologize": "Sorry",
        "book?": "card",
        "card?": "card",
        "pain?": "112",
        "emergency?": "112",
    }
    wanted = next((word for part, word in words.items() if part in asked), "")
    return f"score: {int(wanted in answer)}"


def serve(found: Found) -> str:
    """An answer by the system message."""
    for told, said in (
        ("library of", "We are open until 18:00; please bring the card."),
        ("voice of a railway", "THE TRAIN TO GRAZ LEAVES FROM PLATFORM 7."),
        ("three lines", "- oil\n- vinegar\n- salt"),
        ("doctor's office", "Please call 112 at once, and lie down."),
        ("write titles", "When the river came"),
        ("a teacher", "Mia, what is 7 times 4, taken twice?"),
        ("with the keys rooms", '{"rooms": 2, "price": 160}'),
    ):
        if told in found.string:
            return said
    city = re.findall(r"a shop in (\w+)", found.string)
    sorry = "Sorry! " if "came broken" in found.string else ""
    return f"{sorry}Come to our shop in {city[0]}." if city else f"{sorry}Come to our shop."


def ask_first(found: Found) -> str:
    person = re.findall(r"of (\w+)", found.string)[0]
    if "has not agreed" in found.string:
        return f"answer: {person} has not agreed, so I send nothing."
    return send(found) if "has agreed" in found.string else call("has_consented", person=person)


def send(found: Found) -> str:
    person = re.findall(r"of (\w+)", found.string)[0]
    return "answer: Done." if "Sent." in found.string else call("send", person=person, data="all", to="partner")


def shortcut(asks: bool, ordered: bool = True) -> Any:
    """The plan of a person; without the words on references, with values that one would make up."""

    def plan(found: Found) -> str:
        question = re.findall(r"question: (.*)", found.string)[0]
        names = re.findall(r"(?:to the|from the|is the|where the) (\w+)", question)
        calls: list[dict[str, Any]] = [{"name": "find_place", "arguments": {"name": name}} for name in names]

        def result() -> Any:
            return {"$ref": str(len(calls))} if asks else names[-1]

        if "tell you" in question or len(names) == 2:
            told = {"$ask": "Where do you start?"} if asks else "home"
            start = told if "tell you" in question else {"$ref": "1"} if asks else names[0]
            calls.append({"name": "walk", "arguments": {"start": start, "to": result()}})
        elif not question.startswith("Where is") and "where the" not in question:
            calls.append({"name": "route", "arguments": {"to": result()}})
        if "emind" in question:
            calls.append({"name": "remind", "arguments": {"text": result()}})
        return json.dumps(calls if ordered else calls[::-1])

    return plan


ANALYSIS = """
def r(one, other):
    a, b = ([row[name] for row in table] for name in (one, other))
    x, y = sum(a) / len(a), sum(b) / len(b)
    s = sum((v - x) ** 2 for v in a) * sum((v - y) ** 2 for v in b)
    return sum((v - x) * (w - y) for v, w in zip(a, b)) / s ** 0.5
both = lambda name: min(abs(r(name, "coffee")), abs(r(name, "pulse"))) > 0.4
decisions = ["adjust for " + name for name in ("age", "weight", "sleep") if both(name)]
if min(row["pulse"] for row in table) > 0:
    decisions.append("log of pulse")
decisions"""


def analyse(found: Found) -> str:
    """In two cells: the names of the columns are known from the first one."""
    results = re.findall(r"(?m)^result: (.*)$", found.string)
    if not results:
        return code("table[0]")
    return code(*ANALYSIS.strip().splitlines()) if "coffee" in results[0] and len(results) == 1 else "note: done"


class Links:
    """Names the links of a page in turn."""

    def __init__(self) -> None:
        self.said = 0

    def __call__(self, found: Found) -> str:
        links = re.findall(r"click [A-Za-z]+", re.findall(r"You can: (.*)", found.string)[-1])
        self.said += 1
        return links[self.said % len(links)]


DOING = {"clicking": "click", "selecting": "select", "entering": "enter", "pressing": "press"}


def in_order(brief: str, first: bool) -> list[str]:
    """The parts of an instruction; first: what stands behind "after" is done first."""
    now, _, before = brief.rstrip(".").partition(", after ")
    parts = re.split(r", and (?:then )?", now)
    before = re.sub(r"\b(\w+ing)\b", lambda m: DOING.get(m[1], m[1]), before)
    return [*([before] if before and first else []), *parts, *([before] if before and not first else [])]


def act_on_page(first: bool) -> Any:
    """Do what is left, as far as that is shown; else what the instruction names first. It looks at the page alone."""

    def act(found: Found) -> str:
        brief = re.findall(r"(?m)^brief: (.*)$", found.string)[0]
        left = re.findall(r"(?m)^left: (.+)$", found.string)
        todo = json.loads(left[0]) if left else in_order(brief, first)
        action, ends = next_press(todo[0], found.string) if todo else ("nothing is left", False)
        return f"left: {json.dumps(todo[1:] if ends else todo)}\naction: {action}"

    return act


SEEN = re.compile(
    r'<(a|button) id="(\d+)">(\w+)<|<label><input type="(?:radio|checkbox)" id="(\d+)"( checked)?>(\w+)<'
    r'|<label>(\w+)<input type="\w+" id="(\d+)" value="(\w*)">'
)


def next_press(todo: str, page: str) -> tuple[str, bool]:
    """The next action for a part, and whether it is its last one."""
    seen = [found.groups() for found in SEEN.finditer(page)]
    presses = [(tag, label, int(number)) for tag, number, label, *_ in seen if tag]
    words = re.findall('"(.*?)"', todo)
    if "link" in todo or "button" in todo:
        tag = "a" if "link" in todo else "button"
        return f"click {next((n for t, label, n in presses if (t, label) == (tag, words[0])), 0)}", True
    if todo.lower().startswith("select"):
        wanted, last = re.split(", | and ", todo[7:].rpartition(" and ")[0]), 0
        for box, checked, label in (group[3:6] for group in seen if group[3]):
            if label in wanted and not checked:
                return f"click {box}", False
            last = int(box) if label in wanted else last
    else:
        labels: tuple[str, ...] = ("Username", "Password") if "username" in todo else ("Text",)
        wanted, last = dict[str, str](zip(labels, words, strict=True)), 0
        for label, number, value in (group[6:] for group in seen if group[6] in wanted):
            if not value:
                return f"type {number} {wanted[label]}", False
            last = int(number)
    return f"click {min((n for *_, n in presses if n > last), default=0)}", True


BENCHMARKS: dict[str, Case] = {
    "agent_issues.yaml": Case([("Find the fault", "observation", mend)]),
    "ml_experiments.yaml": Case([("Look at the data", "observation", experiment)]),
    "one_day.yaml": Case(
        [
            ("Read the attachments", "observation", plan_trip),
            ("Write the file that is asked for", "observation ?", plan_trip),
            *[(row["rubric"], "(?s)Answer: (trip.md.*)", grade_trip(row["rubric"])) for row in own_rows("trips")],
            ("You grade an answer", "Answer: ", "score: 0"),
        ],
    ),
    "agentif.yaml": Case(
        [
            ("Answer as the system message says", "question", serve),
            ("Take out", "Answer: ", take_out),
            ("You take something out", "Answer: ", take_out),
            ("You check one point", "Answer: ", check_point),
        ],
    ),
    "eu_agent_bench.yaml": Case(
        [("if the law allows it", "question", ask_first), ("Do what is asked.", "question", send)]
    ),
    "shortcuts_bench.yaml": Case(
        [
            ("for what the first call returns", "question", shortcut(True)),
            ("in any order", "question", shortcut(True, False)),
            ("as JSON.", "question", shortcut(False)),
        ],
    ),
    "webnav.yaml": Case(
        [("Find the page with this sentence", "You can", Links())],
    ),
    "blade.yaml": Case([("Look at the data in Python", "question", analyse)]),
    "compwob.yaml": Case(
        [
            ('behind "after"', "observation", act_on_page(True)),
            ("Do what is asked on the page.", "observation", act_on_page(False)),
        ],
    ),
}
