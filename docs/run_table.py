"""Runs the command of a table in contrib/bench/LOG.md, and writes what it prints in place of the table, with its date.

Usage: python docs/run_table.py NAME

    <!-- table NAME -->
        COMMAND            (indented, in the order in which they run)
    Of 1 January 2026 (0123abcd, workbench 0.1.0).
    | what | the commands | printed |
    <!-- end of table -->

Only lines that begin with | are taken, and headings of several tables (`With 800 calls:`) before them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "contrib" / "bench" / "LOG.md"
DISTRIBUTION = "workbench-core"


def find_table(page: str, name: str) -> re.Match[str]:
    """The commands (1) and the table (2) of a name. Raises SystemExit."""
    begins = rf"<!-- table {re.escape(name)} -->\n\n"
    found = re.search(rf"{begins}((?:    [^\n]*\n)+)\n(.*?)<!-- end of table -->", page, re.DOTALL)
    if found is None:
        known = ", ".join(re.findall(r"<!-- table (\S+) -->", page))
        sys.exit(f"there is no table '{name}' in {PAGE.name}; there are: {known}")
    return found


def run_commands(lines: str) -> list[str]:
    """The lines of tables that the commands print. Raises SystemExit for one that fails, or prints none."""
    script = re.sub(r" +# .*", "", re.sub(r"(?m)^    ", "", lines))
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode} of:\n{script}")
    found = [line for line in done.stdout.splitlines() if line.startswith("|") or re.fullmatch(r"\w.*:|", line)]
    if not any(line.startswith("|") for line in found):
        sys.exit(f"no line begins with | in what this prints:\n{script}")
    head = found[:2] if found[0].startswith("|") else []  # several commands may print parts of one table
    return head + [line for line in found if line not in head]


def describe_checkout() -> str:
    """The commit, and whether the files are others."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=8", "--dirty=, changed"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    name = parser.parse_args().name
    lines = run_commands(find_table(PAGE.read_text(encoding="utf-8"), name)[1])
    today = f"Of {date.today():%-d %B %Y} ({describe_checkout()}, workbench {version(DISTRIBUTION)})."
    page = PAGE.read_text(encoding="utf-8")  # again: the commands may take hours
    found = find_table(page, name)
    table = "\n".join([today, "", *lines]).strip() + "\n\n"
    PAGE.write_text(page[: found.start(2)] + table + page[found.end(2) :], encoding="utf-8")


if __name__ == "__main__":
    main()
