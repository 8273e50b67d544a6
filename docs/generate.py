"""Writes docs/reference, the lists of contents, and the parameter tables of the plugins' READMEs, from the
code; the tests of each fault, from their markers; and schema.json, which git ignores.

Usage: python docs/generate.py [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path

from writers.catalog import catalog
from writers.contents import with_contents, with_next
from writers.faults import PAGE as FAULTS, with_faults
from writers.gateway import with_fields
from writers.reference import pages, schema
from writers.tables import with_parameters

from workbench.base.distribution import CATALOG

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"


def included(path: Path) -> str:
    """A page with its `<!-- include: FILE -->` blocks filled from the files that they name."""

    def fill(match: re.Match[str]) -> str:
        code = (ROOT / match.group(2)).read_text(encoding="utf-8")
        return textwrap.indent(f"<!-- include: {match.group(2)} -->\n```python\n{code}```", match.group(1))

    block = re.compile(r"^( *)<!-- include: (\S+) -->\n\1```python\n.*?\1```", re.MULTILINE | re.DOTALL)
    return block.sub(fill, path.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if any page is stale")
    check = parser.parse_args().check
    stale = []
    FOLDER.mkdir(exist_ok=True)
    wanted = {FOLDER / name: text for name, text in pages().items()}
    wanted |= {path: included(path) for path in sorted((ROOT / "docs").glob("*/*.md")) if path not in wanted}
    wanted[FOLDER / "gateway.md"] = with_fields(FOLDER / "gateway.md")
    wanted[FAULTS] = with_faults()
    wanted[CATALOG] = catalog()
    wanted[ROOT / "README.md"] = with_next(ROOT / "README.md")
    wanted[ROOT / "docs" / "index.md"] = with_contents(ROOT / "docs" / "index.md")
    wanted |= {path: with_parameters(path) for path in sorted((ROOT / "plugins").glob("*/workbench_*/README.md"))}
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(text, encoding="utf-8")
    if not check:
        (FOLDER / "schema.json").write_text(schema(), encoding="utf-8")
    print(("stale: " if check else "written: ") + ", ".join(stale) if stale else "docs are up to date")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
