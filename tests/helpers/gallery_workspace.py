"""What a scripted model says in the workflows of the gallery that work in a folder of files (`gallery_scripts`)."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from tests.helpers.gallery_speech import Case, call

GALLERY = Path(__file__).parents[2] / "workflows" / "gallery"
Found = re.Match[str]
#: What mends each issue.
MENDS = {"retry": ("range(attempts)", "range(attempts - 1)"), "history": ("[:most]", "[-most:]"), "names": ("==", "is")}


def _rows(name: str, count: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GALLERY / f"{name}.jsonl").read_text().splitlines()[:count]]


def _read(found: Found) -> str:
    """What the prompt shows of the last file read or command run, in the history or now."""
    return found.string.rpartition("observation: ")[2].rpartition("\naction:")[0]


def mend(found: Found) -> str:
    """Read the file, write it mended, submit: each step by what the history shows was done."""
    (file,) = re.findall(r"Files: README.md, (\w+)\.py", found.string)[:1] or ["README"]
    said = re.findall(r'"tool": "(\w+)"', found.string.partition("history: ")[2])
    if not said:
        return call("read", path=f"{file}.py")
    if said[-1] == "write":
        return call("submit")
    return call("write", path=f"{file}.py", text=_read(found).replace(*MENDS[file], 1) + "\n")


def experiment(found: Found) -> str:
    """Read the table and split it by the column that decides; blind, by the first one."""
    said = re.findall(r'"tool": "(\w+)"', found.string.partition("history: ")[2])
    if "write" in said:
        return call("submit")
    if "read" not in said:
        return call("read", path="train.csv")
    lines = [line.split(",") for line in re.findall(r"(?m)^\d+,\d+,\d+,(?:yes|no)$", found.string)]
    best, column, cut = 0.0, 0, 50.0
    for number in range(3):
        values = [float(line[number]) for line in lines]
        for edge in {value + 0.5 for value in values} | {statistics.median(values)}:
            right = sum((float(line[number]) > edge) == (line[3] == "yes") for line in lines) / len(lines)
            best, column, cut = max((best, column, cut), (right, number, edge))
    name = ("height", "weight", "age")[column]
    return call("write", path="model.py", text=f"def predict(row):\n    return 'yes' if float(row['{name}']) > {cut} else 'no'\n")


def plan_trip(found: Found) -> str:
    """By the notes, if they were read."""
    said = re.findall(r'"tool": "(\w+)"', found.string.partition("history: ")[2])
    if "write" in said:
        return call("submit")
    notes = re.findall(r"From (\w+) to (\w+) on the (\d+)th", found.string)
    if not notes and "Read the attachments" in found.string:
        return call("read", path="notes.txt")
    here, there, day = notes[0] if notes else ("home", "the sea", "1")
    return call("write", path="trip.md", text=f"On the {day}th by train from {here} to {there}.\n")


def read_and_plan(found: Found) -> str:
    if "From " not in found.string and '"read"' not in found.string:
        return call("read", path="notes.txt")
    return plan_trip(found)


TRIPS = ("On the 8th by train from Rome to Oslo.", "On the 16th by train from Bonn to Graz.")
WORKSPACE: dict[str, Case] = {
    "agent_issues.yaml": Case([(row, {"score": "1.0"}) for row in _rows("issues", 2)], [("Find the fault", "observation", mend)]),
    "ml_experiments.yaml": Case(
        [(row, {"score": score}) for row, score in zip(_rows("experiments", 2), ("0.9666666666666667", "1.0"), strict=True)],
        ("Look at the data", "observation", experiment)],
    ),
    "one_day.yaml": Case(
        [(row, {"observation": f"trip.md:\n{text}\n"}) for row, text in zip(_rows("trips", 2), TRIPS, strict=True)],
        [("Read the attachments", "observation", read_and_plan)],
    ),
}
