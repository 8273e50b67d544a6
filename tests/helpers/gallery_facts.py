"""What a scripted model knows of the questions on Ostra, its pictures and its files: the ways to the answers.

A way begins with a name and goes from look-up to look-up: each asks for something of what the last one found, and is
known only where the text that is shown says it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.helpers.gallery_speech import call, own_rows


class LookUp(NamedTuple):
    """A search, and a pattern of what it finds; `{}` is what was found before. source: pages or pictures."""

    query: str
    pattern: str
    source: str = "pages"


LOOK_UPS = {
    "builder": LookUp("{} built", r"{} was built in \d+ by (\w+ \w+)"),
    "built in": LookUp("{} built", r"{} was built in (\d+)"),
    "birthplace": LookUp("{} engineer born", r"{} was an engineer, born in (\w+)"),
    "born in": LookUp("{} engineer born", r"{} was an engineer, born in \w+ in (\d+)"),
    "profession": LookUp("{} was", r"{} was (an engineer|a whaler)"),
    "capital": LookUp("capital of {}", r"(\w+) is the capital of {}"),
    "river": LookUp("river on which {} lies", r"{} is the capital[^.]*\. It lies on the river (\w+)"),
    "rises": LookUp("river {} rises", r"river {} rises in (the \w+ hills)"),
    "bay": LookUp("river {} flows into", r"river {} rises .* and flows into (the \w+ Bay)"),
    "cheese": LookUp("cheese of {}", r"(?i){} are known for .* a cheese called (\w+)"),
    "ripens": LookUp("{} ripens", r"(?i){} is a hard cheese that ripens for ([a-z ]+)"),
    "harbour": LookUp("only harbour that never freezes", r"(\w+ \w+) is the only harbour of {}"),
    "ships": LookUp("{} freezes, and ships go", r"{} freezes every winter, and ships go to (\w+ \w+)"),
    "founder": LookUp("{} founded", r"{} is the only harbour[^.]*\. It was founded in \d+ by (\w+ \w+)"),
    "founded": LookUp("{} founded", r"{} is the only harbour[^.]*\. It was founded in (\d+)"),
    "book": LookUp("{} wrote a book", r"{} was a whaler\. He wrote a book about (\w+)"),
    "teaches": LookUp("university of {}", r"university of {} teaches ([a-z ]+)"),
    "rector": LookUp("university of {} first rector", r"university of {}[^.]*\. Its first rector was (\w+ \w+)"),
    "country": LookUp("flag of {}", r"(\w+) is a small country .* Its flag is {}"),
    "colours": LookUp("flag of {}", r"{} is a small country .* Its flag is ([a-z ]+)"),
    "lighthouse": LookUp("what was built by {}", r"The (lighthouse of \w+) was built in \d+ by {}"),
    "hills": LookUp("cheese called {}", r"The (\w+ hills) are known for .* a cheese called {}"),
    # Pictures, by their captions.
    "holds": LookUp("statue {} who holds", r"statue of an engineer, {}, who holds a (\w+)", "pictures"),
    "statue": LookUp("statue who holds a {}", r"statue of an engineer, (\w+ \w+), who holds a {}", "pictures"),
    "sign": LookUp("{} sign with the name", r"{}[^.]*\. On the wall a sign with the name (\w+ \w+)", "pictures"),
    "shown at": LookUp("harbour sign {}", r"A harbour at (\w+)\. On the wall a sign with the name {}", "pictures"),
    "rind": LookUp("{} cheese rind", r"{} cheese with the word (\w+) on its rind", "pictures"),
    "form": LookUp("hard cheese with the word {}", r"A (\w+) hard cheese with the word {} on its rind", "pictures"),
    "arches": LookUp("bridge arches {}", r"bridge of (\w+) arches across the river {}", "pictures"),
    "below": LookUp("bridge of {} arches", r"bridge of {} arches across the river (\w+)", "pictures"),
    "hangs above": LookUp("flag {}", r"A flag, {}, above (a \w+ \w+)", "pictures"),
    "flag above": LookUp("flag above {}", r"A flag, ([a-z ]+), above {}", "pictures"),
    "lies in": LookUp("{} ice of a bay", r"A (ship) in the {} of a bay", "pictures"),
    "towns": LookUp("{} country towns", r"{} is a small country with (\w+) towns"),
}


@dataclass(frozen=True)
class Ways:
    """The ways to the parts of an answer."""

    ways: tuple[tuple[str, ...], ...]

    def follow(self, text: str) -> tuple[list[str], list[LookUp]]:
        """(the parts that are known by the text, the next look-up of each other part)."""
        found, open_ = list[str](), list[LookUp]()
        for subject, *names in self.ways:
            for look in map(LOOK_UPS.__getitem__, names):
                seen = re.search(look.pattern.replace("{}", re.escape(subject)), text)
                if seen is None:
                    open_.append(
                        LookUp(look.query.replace("{}", subject), look.pattern.replace("{}", subject), look.source)
                    )
                    break
                subject = seen[1]
            else:
                found.append(subject)
        return found, open_

    def sentences(self, text: str) -> set[str]:
        """The patterns of all look-ups that the text answers, one after the other: what of it is on the way."""
        used = set[str]()
        for subject, *names in self.ways:
            for look in map(LOOK_UPS.__getitem__, names):
                seen = re.search(look.pattern.replace("{}", re.escape(subject)), text)
                if seen is None:
                    break
                used.add(seen[0])
                subject = seen[1]
        return used

    def answer(self, text: str) -> str:
        found, open_ = self.follow(text)
        return "unknown" if open_ else ", ".join(found)


LIGHTHOUSE, AMSEL = "lighthouse of Lorvik", "Port Amsel"
BORN, BOOK = (LIGHTHOUSE, "builder", "birthplace"), (AMSEL, "founder", "book")
RIVER_OF_BIRTH, RIPENS = (*BORN, "river"), ("the Hallen hills", "cheese", "ripens")
QUESTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Where was the builder of the lighthouse of Lorvik born?": (BORN,),
    "Into which bay flows the river of the capital of Ostra?": (("Ostra", "capital", "river", "bay"),),
    "In which year was the builder of the lighthouse of Lorvik born?": ((LIGHTHOUSE, "builder", "born in"),),
    "What was the founder of Port Amsel by profession?": ((AMSEL, "founder", "profession"),),
    "How long does the cheese of the Hallen hills ripen?": (RIPENS,),
    "Who was the first rector of the university in the capital of Ostra?": (("Ostra", "capital", "rector"),),
    "How long does the cheese ripen that is made where the river Quill rises?": (
        ("Quill", "rises", "cheese", "ripens"),
    ),
    "What did the founder of Port Amsel write a book about?": (BOOK,),
    "Which river flows past the town where the builder of the lighthouse of Lorvik was born?": (RIVER_OF_BIRTH,),
    "Where does the river rise on which the capital of Ostra lies?": (("Ostra", "capital", "river", "rises"),),
    "What does the university of the town teach where Mara Ilven was born?": (("Mara Ilven", "birthplace", "teaches"),),
    "Who founded the harbour to which ships go when the Grey Bay freezes?": (("The Grey Bay", "ships", "founder"),),
    "In which year was the harbour founded to which ships go from the Grey Bay?": (
        ("The Grey Bay", "ships", "founded"),
    ),
    "What does the university in the capital of Ostra teach?": (("Ostra", "capital", "teaches"),),
    "Name the cheese that comes from where the river of the capital of Ostra rises.": (
        ("Ostra", "capital", "river", "rises", "cheese"),
    ),
    "What did the founder of the harbour of Ostra that never freezes write about?": (
        ("Ostra", "harbour", "founder", "book"),
    ),
    "On which river lies the birthplace of the lighthouse's builder, and what did Port Amsel's founder write about?": (
        RIVER_OF_BIRTH,
        BOOK,
    ),
    "Where was the lighthouse's builder born, and how long ripens the cheese made where the Quill rises?": (
        BORN,
        ("Quill", "rises", "cheese", "ripens"),
    ),
    "What was Port Amsel's founder, and who was first rector where the lighthouse's builder was born?": (
        (AMSEL, "founder", "profession"),
        (*BORN, "rector"),
    ),
    "How long ripens the cheese of the Hallen hills, and which river flows where the lighthouse's builder was born?": (
        RIPENS,
        RIVER_OF_BIRTH,
    ),
    "What is taught where the lighthouse's builder was born, and what wrote he who founded where ships go in winter?": (
        (*BORN, "teaches"),
        ("The Grey Bay", "ships", "founder", "book"),
    ),
    "How long ripens the cheese of the Hallen hills, and what was he who founded the harbour that never freezes?": (
        RIPENS,
        ("Ostra", "harbour", "founder", "profession"),
    ),
    "Into which bay flows the river of Ostra's capital, and in which year was the lighthouse's builder born?": (
        ("Ostra", "capital", "river", "bay"),
        (LIGHTHOUSE, "builder", "born in"),
    ),
    "What is taught in the birthplace of Mara Ilven, and how long ripens the cheese made where the Quill rises?": (
        ("Mara Ilven", "birthplace", "teaches"),
        ("Quill", "rises", "cheese", "ripens"),
    ),
}


#: Questions that one page answers.
SINGLE: dict[str, tuple[tuple[str, ...], ...]] = {
    "In which year was the lighthouse of Lorvik built?": ((LIGHTHOUSE, "built in"),),
    "Who built the lighthouse of Lorvik?": ((LIGHTHOUSE, "builder"),),
    "What is the cheese of the Hallen hills called?": (("the Hallen hills", "cheese"),),
    "Where does the river Quill rise?": (("Quill", "rises"),),
    "What did the whaler Jon Vey write a book about?": (("Jon Vey", "book"),),
    "How long does dorn ripen, the hard cheese?": (("dorn", "ripens"),),
    "Who founded the harbour Port Amsel?": ((AMSEL, "founder"),),
    "In which year was the engineer Mara Ilven born?": (("Mara Ilven", "born in"),),
}

#: Questions of pages and pictures.
PICTURED: dict[str, tuple[tuple[str, ...], ...]] = {
    "What does the statue of the builder of the lighthouse of Lorvik hold?": ((LIGHTHOUSE, "builder", "holds"),),
    "How many arches has the bridge across the river of Tessmark?": (("Tessmark", "river", "arches"),),
    "Which name stands on the sign of the harbour in the picture, and who founded that harbour?": (
        ("A harbour at night", "sign"),
        ("A harbour at night", "sign", "founder"),
    ),
    "Which word stands on the rind of the cheese, and how long does it ripen?": (
        ("round hard", "rind"),
        ("round hard", "rind", "ripens"),
    ),
    "Above what does the flag of Ostra hang in the picture?": (("Ostra", "colours", "hangs above"),),
    "At which time of the day is the harbour shown that never freezes?": (("Ostra", "harbour", "shown at"),),
    "What form has the cheese of the Hallen hills in its picture?": (("the Hallen hills", "cheese", "form"),),
    "In which year was the woman born whose statue holds a lamp?": (("lamp", "statue", "born in"),),
    "Where was the engineer born whom the statue shows?": (("lamp", "statue", "birthplace"),),
    "Across which river does the bridge of five arches lead, and where does this river rise?": (
        ("five", "below"),
        ("five", "below", "rises"),
    ),
    "Which country has the flag that hangs above the town hall?": (("a town hall", "flag above", "country"),),
    "Into which bay flows the river below the bridge of five arches?": (("five", "below", "bay"),),
    "In which year was the harbour founded whose name stands on a sign on the wall?": (
        ("A harbour at night", "sign", "founded"),
    ),
    "What did the woman build whose statue holds a lamp?": (("lamp", "statue", "lighthouse"),),
    "On which river lies the town where the woman of the statue was born?": (
        ("lamp", "statue", "birthplace", "river"),
    ),
    "Which hills does the cheese come from that has its name on the rind?": (("round hard", "rind", "hills"),),
    "Of which colours is the flag in the picture, and how many towns has its country?": (
        ("a town hall", "flag above"),
        ("a town hall", "flag above", "country", "towns"),
    ),
    "What was the founder of the harbour, whose sign is seen at night, by profession?": (
        ("A harbour at night", "sign", "founder", "profession"),
    ),
    "How long does dorn ripen?": (("dorn", "ripens"),),
    "What lies in the ice of the bay in the picture?": (("ice", "lies in"),),
}
#: Questions that no page answers, and that need none.
SIMPLE = {row["question"]: row["answer"] for row in own_rows("levels")[:8]}


class Command(NamedTuple):
    """A command of the small shell, and what of its output is the answer."""

    command: str
    read: Callable[[list[str]], str]


def _word(lines: list[str]) -> str:
    return lines[0].split()[-1]


def _twice(lines: list[str]) -> str:
    return next(line for line in lines if lines.count(line) > 1)


#: What is asked of the files, by words of the question.
FILES = {
    "how many lines has fruit.txt": Command("wc fruit.txt", lambda lines: lines[0]),
    "how many lines has towns.txt": Command("wc towns.txt", lambda lines: lines[0]),
    "how many towns stand in towns.txt": Command("wc towns.txt", lambda lines: lines[0]),
    "how many lines has notes.txt": Command("wc notes.txt", lambda lines: lines[0]),
    "how many notes are in notes.txt": Command("wc notes.txt", lambda lines: lines[0]),
    "town in towns.txt comes first": Command("sort towns.txt", lambda lines: lines[0]),
    "town in towns.txt comes last": Command("sort towns.txt", lambda lines: lines[-1]),
    "in the first line of towns.txt": Command("cat towns.txt", lambda lines: lines[0]),
    "town in towns.txt has an n": Command("grep n towns.txt", lambda lines: lines[0]),
    "town of towns.txt has three letters": Command("cat towns.txt", lambda lines: min(lines, key=len)),
    "fruit comes last": Command("sort fruit.txt", lambda lines: lines[-1]),
    "fruit of fruit.txt comes last": Command("sort fruit.txt", lambda lines: lines[-1]),
    "fruit in fruit.txt comes first": Command("sort fruit.txt", lambda lines: lines[0]),
    "fruit of fruit.txt comes first": Command("sort fruit.txt", lambda lines: lines[0]),
    "fruit stands in fruit.txt twice": Command("cat fruit.txt", _twice),
    "fruit stands in the second line": Command("cat fruit.txt", lambda lines: lines[1]),
    "how many different fruits": Command("cat fruit.txt", lambda lines: str(len({*lines}))),
    "how often does apple stand in fruit.txt": Command("grep apple fruit.txt", lambda lines: str(len(lines))),
    "i buy by notes.txt": Command("grep buy notes.txt", _word),
    "what does notes.txt say about the pear": Command("grep pear notes.txt", lambda lines: lines[0]),
    "i call by notes.txt": Command("grep call notes.txt", _word),
    "which person does notes.txt name": Command("grep call notes.txt", _word),
    "i sell by notes.txt": Command("grep sell notes.txt", _word),
    "is to be sold by notes.txt": Command("grep sell notes.txt", _word),
    "in the last line of notes.txt": Command("cat notes.txt", lambda lines: lines[-1]),
    "how many files": Command("ls", lambda lines: str(len(lines[0].split()))),
    "which files are there": Command("ls", lambda lines: ", ".join(lines[0].split())),
}


def command_for(question: str) -> Command | None:
    return next((command for words, command in FILES.items() if words in question.lower()), None)


#: What is asked of a place in the first half of a question that asks for a file, too: a search, and a pattern.
PLACES = {
    "Who built the lighthouse": ("lighthouse of Lorvik built", r"built in \d+ by (\w+ \w+)"),
    "dorn ripen": ("dorn ripens", r"ripens for ([a-z ]+)"),
    "year was Port Amsel founded": ("Port Amsel founded", r"founded in (\d+)"),
    "which river does Tessmark lie": ("Tessmark lies on the river", r"lies on the river (\w+)"),
    "the flag of Ostra": ("flag of Ostra", r"flag is ([a-z ]+)"),
    "Jon Vey write": ("Jon Vey wrote a book", r"a book about (\w+)"),
    "people live in Lorvik": ("Lorvik people", r"has ([\d,]+) people"),
    "first rector": ("first rector of the university", r"rector was (\w+ \w+)"),
    "Quill rise": ("river Quill rises", r"rises in (the \w+ hills)"),
    "bay freezes every winter": ("bay freezes every winter", r"The (\w+ Bay) freezes"),
    "cheese of the Hallen hills": ("cheese of the Hallen hills", r"cheese called (\w+)"),
    "Jon Vey by profession": ("Jon Vey was", r"Jon Vey was (a \w+)"),
    "Mara Ilven born": ("Mara Ilven engineer born", r"born in \w+ in (\d+)"),
    "Hallen hills known for": ("Hallen hills known for", r"known for their (\w+)"),
    "do ships go": ("ships go when the Grey Bay freezes", r"ships go to (\w+ \w+)"),
    "university of Tessmark teach": ("university of Tessmark teaches", r"teaches ([a-z ]+)"),
    "capital of Ostra": ("capital of Ostra", r"(\w+) is the capital"),
    "Quill flow": ("river Quill flows into", r"flows into (the Grey Bay)"),
}


def ways(question: str) -> Ways:
    return Ways({**QUESTIONS, **SINGLE, **PICTURED}.get(question, (("nothing", "profession"),)))


def shown(found: re.Match[str], field: str) -> str:
    """What the prompt shows of a field; empty if it is not there. A field without a value is one to be written."""
    values = re.findall(rf"(?ms)^{field}: (.*?)(?=^\w+: ?|^\w+:\Z|\Z)", found.string)
    return values[-1].strip() if values else ""


def asks(found: re.Match[str], *fields: str) -> list[str]:
    """The searches that are open by what is shown in the fields."""
    _, open_ = ways(shown(found, "question")).follow(" ".join(shown(found, field) for field in fields))
    return [look.query for look in open_]


def answers(*fields: str) -> Callable[[re.Match[str]], str]:
    """The answer by what is shown in the fields."""
    return lambda found: ways(shown(found, "question")).answer(" ".join(shown(found, field) for field in fields))


def answers_brief(field: str) -> Callable[[re.Match[str]], str]:
    """The answer by notes; one that has nothing to do with the question confuses."""

    def say(found: re.Match[str]) -> str:
        way, notes = ways(shown(found, "question")), bare(shown(found, field)).splitlines()
        of_help = helpful(way, " ".join(notes))
        return way.answer(" ".join(notes)) if all(of_help & {*split(note)} for note in notes) else "unknown"

    return say


def bare(text: str) -> str:
    """Without numbers and titles of pages and notes."""
    return re.sub(r"(?m)^\[\w+\] (?:\w+: )?", "", text)


def split(text: str) -> list[str]:
    """Its sentences."""
    return [part.strip(" .") for part in re.split(r"\.(?:\s|$)", text) if part.strip(" .")]


def helpful(way: Ways, text: str) -> set[str]:
    """The sentences that take part in what is on the way."""
    used = {part for seen in way.sentences(text) for part in split(seen)}
    return {one for one in split(text) if any(part in one for part in used)}


# The roles that such a model plays in the files of the gallery.


def write_list(found: re.Match[str]) -> str:
    """MindSearch: all that is open is asked at once."""
    return json.dumps(asks(found, "findings"))


def write_next(*fields: str, idle: str = "none") -> Callable[[re.Match[str]], str]:
    """The first search that is open, and if none is, an idle one."""
    return lambda found: (*asks(found, *fields), idle)[0]


def suffices(*fields: str) -> Callable[[re.Match[str]], str]:
    return lambda found: "no" if asks(found, *fields) else "yes"


def page_helps(found: re.Match[str]) -> str:
    """Amber's first filter: by the words of the search; an idle one says nothing against any page."""
    idle = shown(found, "query") == "none"
    return "yes" if idle or on_search(shown(found, "query"), bare(shown(found, "page"))) else "no"


def copy_sentences(found: re.Match[str]) -> str:
    """Amber's second filter: of a page or two the sentences that help with the search, of more all of them."""
    kept, query = [bare(page) for page in json.loads(shown(found, "kept"))], shown(found, "query")
    return " ".join(f"{one}." for page in kept for one in split(page) if len(kept) > 2 or one in on_search(query, page))


def on_search(query: str, page: str) -> set[str]:
    """The sentences of a page that a search is about."""
    found = set[str]()
    for look in LOOK_UPS.values():
        subject = re.fullmatch(look.query.replace("{}", "(.*)"), query)
        of = re.escape(subject[1]) if subject and subject.groups() else r"[\w ]+"
        if subject and (seen := re.search(look.pattern.replace("{}", of), page)):
            found |= {one for one in split(page) for part in split(seen[0]) if part in one}
    return found


def rewrite_memory(found: re.Match[str]) -> str:
    """Amber's memory: what is of no help to the question makes it unclear."""
    way = ways(shown(found, "question"))
    memory = f"{shown(found, 'memory').removeprefix('nothing yet')} {shown(found, 'sentences') or shown(found, 'kept')}"
    clear = set(split(memory)) <= helpful(way, memory)
    enough = clear and not way.follow(memory)[1]
    return f"memory: {memory.strip() if clear else 'unclear'}\nenough: {'yes' if enough else 'no'}"


def draft(found: re.Match[str]) -> str:
    """Sibyl's writer: at first what the first look-up found; then, if it is told so, what the question asks for."""
    way, text = ways(shown(found, "question")), shown(found, "workspace")
    if shown(found, "fault") == "not what is asked for":
        return way.answer(text)
    subject, name, *_ = way.ways[0]
    seen = re.search(LOOK_UPS[name].pattern.replace("{}", re.escape(subject)), text)
    return seen[1] if seen else "unknown"


def find_fault(juror: str) -> Callable[[re.Match[str]], str]:
    """Who checks the sources sees by the workspace what is wrong; the others repeat it."""

    def say(found: re.Match[str]) -> str:
        heard = shown(found, "answers_of_others") or found.string.partition("answers_of_others: ")[2]
        right = ways(shown(found, "question")).answer(shown(found, "workspace"))
        wrong = juror == "sources" and right != "unknown" and shown(found, "answer") != right
        return "not what is asked for" if wrong or "not what" in heard else "none"

    return say


def how_many_pages(found: re.Match[str]) -> str:
    question = found[1]
    return "simple" if question in SIMPLE else "single" if question in SINGLE else "several"


def search_on(found: re.Match[str]) -> str:
    """An agent that looks for one thing after the other."""
    way = ways(re.findall(r"question: (.*)", found.string)[0])
    seen = " ".join(re.findall(r"(?m)^result: (.*)$", found.string))
    _, open_ = way.follow(seen)
    return call("search", query=open_[0].query) if open_ else f"answer: {way.answer(seen)}"


def run_command(found: re.Match[str]) -> str:
    """StateFlow: at first with a slip in the name of the file."""
    command = command_for(found.string)
    slips = {"fruit.txt": "fruits.txt", "towns.txt": "town.txt", "notes.txt": "note.txt"}
    name, *rest = command.command.split() if command else ["ls"]
    return " ".join([name, *(slips.get(word, word) for word in rest)])


def mend_command(found: re.Match[str]) -> str:
    command = command_for(found.string)
    return command.command if command else "ls"


def submit_result(found: re.Match[str]) -> str:
    command, output = command_for(found.string), re.findall(r"(?s)result: (.*)\Z", found.string)
    return f"submit {command.read(output[-1].splitlines())}" if command and output else "submit unknown"


def plan_look_ups(found: re.Match[str]) -> str:
    """REAPER: a search for the half about a place, a command for the half about a file."""
    place = next((search for words, (search, _) in PLACES.items() if words in found[1]), None)
    command = command_for(found[1])
    steps = [{"source": "places", "ask": place}] if place else []
    return json.dumps([*steps, *([{"source": "files", "ask": command.command}] if command else [])])


def answer_by_evidence(found: re.Match[str]) -> str:
    question, evidence = shown(found, "question"), json.loads(shown(found, "evidence"))
    pattern = next((pattern for words, (_, pattern) in PLACES.items() if words in question), None)
    command, said = command_for(question), list[str]()
    if pattern is not None:
        seen = re.search(pattern, evidence[0]) if evidence else None
        said.append(seen[1] if seen else "unknown")
    if command is not None:
        lines = [one.splitlines() for one in evidence[pattern is not None :]]
        said.append(command.read(lines[0]) if lines else "unknown")
    return ", ".join(said)


def plan_look_up(found: re.Match[str]) -> str:
    """OmniSearch: the next look-up, and where."""
    _, open_ = ways(shown(found, "question")).follow(shown(found, "evidence"))
    return f"source: {open_[0].source}\nask: {open_[0].query}" if open_ else "source: none\nask: nothing"
