"""What a scripted model says in the workflows of the gallery that are made of `loop` and `map` (`gallery_scripts`)."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.helpers import gallery_facts as facts
from tests.helpers.gallery_speech import Case, numbers, own_rows
from tests.helpers.gallery_trees import TREES

#: Characters of a prompt that the model of chain_of_agents can read.
WINDOW = 900


def shown(found: re.Match[str], field: str) -> str:
    """What the prompt shows of a field; empty if it is not there."""
    values = re.findall(rf"(?m)^{field}: (.*)$", found.string)
    return values[-1] if values else ""


def listed(found: re.Match[str], field: str) -> list[Any]:
    """The list that the prompt shows of a field; empty if it is not there."""
    return json.loads(shown(found, field) or "[]")


# Chain of agents: notes are passed on; a prompt that is too long is not read.


def note_facts(found: re.Match[str]) -> str:
    name = re.findall(r"animal of (\w+)\?", found.string)[0]
    if len(found.string) > WINDOW:
        return "too long to read"
    seen = f"{shown(found, 'notes').removeprefix('nothing yet')} . {shown(found, 'piece')}"
    animals = re.findall(rf"{name} has the (\w+)", seen)
    wanted = [name, *animals] if animals else []
    # Which animal it is may come later: then every colour must be kept, short.
    kept = [fact for fact in seen.split(" . ") if any(word in fact.split() for word in wanted)] if wanted else []
    colours = [f"the {a} is {c}" for a, c in dict(re.findall(r"the (\w+) is (\w+)", seen)).items()]
    return " . ".join(kept or colours or ["nothing yet"])


def colour_in_notes(found: re.Match[str]) -> str:
    name = re.findall(r"animal of (\w+)\?", found.string)[0]
    notes = shown(found, "notes")
    animals = re.findall(rf"{name} has the (\w+)", notes)
    colours = re.findall(rf"the {animals[0]} is (\w+)", notes) if animals else []
    return colours[0] if colours else "unknown"


# LongWriter: the model has breath for a paragraph, and knows only from the text which one it is.

TEXTS = {row["question"]: row["answer"].split("\n\n") for row in own_rows("long_texts")}


def write_point(found: re.Match[str]) -> str:
    paragraphs, point = TEXTS[shown(found, "question")], shown(found, "point")
    at, words = len(listed(found, "text")), int(shown(found, "words") or 2)
    return " ".join(paragraphs[at].split()[:words]) if point and at < len(paragraphs) else f"And so on, {point}."


def plan_points(found: re.Match[str]) -> str:
    paragraphs = TEXTS[shown(found, "question")]
    return json.dumps([{"point": f"point {n}", "words": len(p.split())} for n, p in enumerate(paragraphs, 1)])


# MAG-SQL: a part names columns by their places in what was linked; the last part has a slip, and builds on the query.

GOLD = {row["question"]: row["gold_sql"] for row in own_rows("../data/intercode_sql/questions")}


def link_columns(found: re.Match[str]) -> str:
    schema = {*re.findall(r"\w+", found.string.partition("schema: ")[2])}
    return ", ".join(dict.fromkeys(name for name in re.findall(r"\w+", gold_of(found)) if name in schema)) or "none"


def gold_of(found: re.Match[str]) -> str:
    return GOLD[shown(found, "question")]


def cut_query(found: re.Match[str]) -> str:
    names = shown(found, "columns").split(", ")
    places = re.sub(r"\w+", lambda m: f"#{names.index(m[0])}" if m[0] in names else m[0], gold_of(found))
    first, mark, rest = next(
        (p for p in map(places.partition, (" WHERE ", " GROUP ", " ORDER ")) if p[1]), (places, "", "")
    )
    return json.dumps([first, f"and{mark}{rest}"] if rest else [first])


def draft_query(found: re.Match[str]) -> str:
    part, sql, outcome = (shown(found, name) for name in ("part", "sql", "outcome"))
    names = shown(found, "columns").split(", ")
    if "error:" in outcome:
        return sql.replace("_x", "")
    written = re.sub(r"#(\d+)", lambda m: names[int(m[1])] if int(m[1]) < len(names) else "unknown", part)
    if not part.startswith("and "):
        return written
    return f"{sql} {re.sub(r'([a-z]+)$|([a-z]{3,})', lambda m: m[0] + '_x', written.removeprefix('and '), count=1)}"


# ARIES: thoughts of more than two numbers are not solved; the policy looks at the longest.


def next_move(found: re.Match[str]) -> str:
    thoughts = listed(found, "thoughts")
    lengths = [len(numbers(thought)) for thought in thoughts]
    if max(lengths) > 2:
        return "split"
    if any(length > 1 for length in lengths):
        return "solve"
    return "merge" if len(thoughts) > 1 else "stop"


def solve_short(found: re.Match[str]) -> str:
    values = numbers(shown(found, "thought"))
    return str(sum(values)) if len(values) <= 2 else "0"


# AutoFlow: an interpreter that knows its three lines by their words; without a number it does the first.


def add_next(found: re.Match[str]) -> str:
    notes, values = shown(found, "notes"), numbers(shown(found, "question"))
    count, total = added(notes), numbers(notes)[0]
    return f"notes: total {total + values[count % len(values)]} added {count + 1}\nline: 2"


def jump_back(found: re.Match[str]) -> str:
    notes = shown(found, "notes")
    return f"notes: {notes}\nline: {1 if added(notes) < len(numbers(shown(found, 'question'))) else 3}"


def added(notes: str) -> int:
    return int((re.findall(r"added (\d+)", notes) or ["0"])[0])


# Two heads: a turn adds one number, the fourth with a slip, and one too many spoils it; who checks deep sees the slip.


def solve_turn(found: re.Match[str]) -> str:
    values, talk = numbers(shown(found, "question")), listed(found, "talk")
    so_far, step = numbers(talk[-1])[0] if talk else 0, len(talk)
    return f"{so_far + (values[step] if step < len(values) else 1) + (step == 3)} so far"


def lead(found: re.Match[str]) -> str:
    values, talk = numbers(shown(found, "question")), [*listed(found, "talk"), shown(found, "said")]
    if len(talk) < len(values):
        return "speaker: solver\ndepth: shallow"
    if len(values) <= 3 or "checked" in talk[-1]:
        return "speaker: end\ndepth: shallow"
    return "speaker: checker\ndepth: deep"


def check_turn(found: re.Match[str]) -> str:
    deep = shown(found, "depth") == "deep"
    return f"{sum(numbers(shown(found, 'question'))) if deep else numbers(listed(found, 'talk')[-1])[0]} checked"


# iAgents: each says what it knows about what is open; the list says what that is.


def tell(found: re.Match[str]) -> str:
    known = re.findall(r"(?m)^\w+_knows: (.*)$", found.string)[0].split(" . ")
    open_, heard = listed(found, "open"), " ".join(listed(found, "said_so_far"))
    words = {word for item in open_ for word in item.split()} - set("what the question asks".split())
    told = [fact for fact in known if any(word in fact.split() for word in words) and fact not in heard]
    return " . ".join(told) or "nothing"


def navigate(found: re.Match[str]) -> str:
    name = re.findall(r"animal of (\w+)\?", found.string)[0]
    if not listed(found, "open"):
        return "[]"
    heard = " . ".join([*listed(found, "said_so_far"), shown(found, "said")])
    animals = re.findall(rf"{name} has the (\w+)", heard)
    if not animals:
        return json.dumps([name])
    return json.dumps([] if re.search(rf"the {animals[0]} is", heard) else [animals[0]])


def colour_in_talk(found: re.Match[str]) -> str:
    name = re.findall(r"animal of (\w+)\?", found.string)[0]
    heard = " . ".join(listed(found, "said_so_far"))
    animals = re.findall(rf"{name} has the (\w+)", heard)
    colours = re.findall(rf"the {animals[0]} is (\w+)", heard) if animals else []
    return colours[0] if colours else "unknown"


# HM-RAG: the web lies about the builder, and each source is read by itself.


#: By the beginning of a part, what each source says of it.
SAID = {
    "who built": r"(\w+ \w+)(?: is the one who)? built the pier|built by \| (\w+ \w+)",
    "in which year": r"founded in (?:the )?year (?:\| )?(\d+)",
    "who is": r"master of \w+ is (\w+ \w+)|master since \d+ \| (\w+ \w+)|meet (\w+ \w+)",
}


def cut_parts(found: re.Match[str]) -> str:
    """A question's parts, or no more than the whole where it is none."""
    first, *rest = shown(found, "question").rstrip("?").split(", and ")
    return json.dumps([first[0].lower() + first[1:], *rest])


def read_source(found: re.Match[str]) -> str:
    """What the first source that is shown says of the part."""
    part = shown(found, "part").lower()
    pattern = next(said for begin, said in SAID.items() if begin in part)
    said = [next(filter(None, match.groups())) for match in re.finditer(pattern, found.string)]
    return said[0] if said else "unknown"


def newest_entry(found: re.Match[str]) -> str:
    """The harbour master of the newest of all entries."""
    years = {int(year): place for place, year in enumerate(re.findall(r"(?:in|since|of) (\d{4})", found.string))}
    masters = [next(filter(None, match.groups())) for match in re.finditer(SAID["who is"], found.string)]
    return masters[years[max(years)]]


LOOPS: dict[str, Case] = {
    **TREES,
    "chain_of_agents.yaml": Case(
        [
            ("Add to the notes", r"piece: ", note_facts),
            ("Answer the question by the notes", r"notes: ", colour_in_notes),
        ],
    ),
    "mindsearch.yaml": Case(
        [
            ("Which short searches are open", "question: ", facts.write_list),
            ("Answer by what was found.", "findings: ", facts.answers("findings")),
        ],
    ),
    "long_writer.yaml": Case(
        [("Which points must", "question: ", plan_points), ("Write the paragraph", "question: ", write_point)]
    ),
    "reaper.yaml": Case(
        [
            ("Which look-ups answer", "question: (.*)", facts.plan_look_ups),
            ("Answer by the evidence.", "evidence: ", facts.answer_by_evidence),
        ],
    ),
    "amber.yaml": Case(
        [
            ("Write a short search", "memory: ", facts.write_next("memory")),
            ("Does the page help", "page: ", facts.page_helps),
            ("Copy the sentences", "kept: ", facts.copy_sentences),
            ("Write the memory anew", "memory: ", facts.rewrite_memory),
            ("Answer by the memory.", "memory: ", facts.answers("memory")),
        ],
    ),
    "mag_sql.yaml": Case(
        [
            ("Name the tables and columns", "question: ", link_columns),
            ("Cut the question", "columns: ", cut_query),
            ("Write one SQL query", "part: ", draft_query),
        ],
    ),
    "aries.yaml": Case(
        [("What comes next?", "thoughts: ", next_move), ("Add the numbers.", "thought: ", solve_short)],
    ),
    "autoflow.yaml": Case(
        [
            ("2. If a number is left, go to line 1.", "line: 2", jump_back),
            ("3. End.", r"line: 3\nnotes: (.*)", r"notes: \1\nline: 0"),
            ("1. Add the first number of the question that was not added yet", "notes: ", add_next),
            ("Carry out", r"notes: (.*)", r"notes: \1\nline: 2"),
            ("Give the total in the notes.", r"notes: total (\d+)", r"\1"),
            ("Give the total", "", "unknown"),
        ],
    ),
    "two_heads.yaml": Case(
        [
            ("Solve what is still open.", "talk: ", solve_turn),
            ("Find mistakes", "talk: ", check_turn),
            ("Who goes on", "talk: ", lead),
            ("Give the result of the talk.", "talk: ", lambda found: str(numbers(listed(found, "talk")[-1])[0])),
        ],
    ),
    "iagents.yaml": Case(
        [
            ("Say what your person knows", "open: ", tell),
            ("What must still be learned", "said: ", navigate),
            ("Answer by what was said.", "said_so_far: ", colour_in_talk),
        ],
    ),
    "sibyl.yaml": Case(
        [
            ("Write the next search", "question: ", facts.write_next("workspace")),
            ("Answer by the workspace.", "fault: ", facts.draft),
            *[
                (f"You check the {juror}.", "answer: ", facts.find_fault(juror))
                for juror in ("sources", "logic", "form")
            ],
        ],
    ),
    "hm_rag.yaml": Case(
        [
            ("Cut the question", "question: ", cut_parts),
            ("alone.", "part: ", read_source),
            ("The sources differ.", "part: ", newest_entry),
            ("Answer by the findings.", "findings: ", lambda found: ", ".join(listed(found, "findings"))),
        ],
    ),
}
