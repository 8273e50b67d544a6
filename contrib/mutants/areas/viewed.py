"""What is shown of a run: the report."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

FOLDER = "plugins/workbench_view/"
REPORT = ("tests/plugins/view/test_report.py",)

VIEWED: list[Mutant] = [
    *changes_of(
        f"{FOLDER}noise.py",
        REPORT,
        ("/ len(differences)", "/ len(differing)", "the noise band leaves out the rows that do not differ"),
    ),
    *changes_of(
        f"{FOLDER}facts.py",
        REPORT,
        ("(found[0] > 0, ", "(found[0] < 0, ", "gains stand before losses"),
        ("calls.setdefault(str(event", "calls.__setitem__(str(event", "what a resumed run repeats counts as spent"),
        ("(before, after) if room > 0 else (None, None)", "(None, None)", "rows come without their traces"),
    ),
    *changes_of(
        f"{FOLDER}page.py",
        REPORT,
        ("autoescape=True", "autoescape=False", "texts of models are HTML"),
        ("-p.cost[cost]) for p", "p.cost[cost]) for p", "what costs more is on the front"),
    ),
    *changes_of(
        f"{FOLDER}plots.py",
        REPORT,
        ('svg = svg.replace(colour, f"var(--{name})")', "pass", "plots keep their colours on a dark page"),
    ),
    *changes_of(
        f"{FOLDER}text_diff.py",
        REPORT,
        ('pieces += [("-", "".join(before[a:b]))] if a < b else []', "pass", "words that were removed are not shown"),
    ),
    *changes_of(
        f"{FOLDER}exports.py",
        REPORT,
        ("""return f"'{cell}" if""", "return cell if", "ids of rows are formulas to a spreadsheet"),
    ),
]
