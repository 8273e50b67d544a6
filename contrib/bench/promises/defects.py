"""How many planted defects `workbench validate --deep` finds, and what it finds where there is none.

python contrib/bench/promises/defects.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.helpers.planted_defects import check_deeply, planted_cases, shipped_files, starter_workflows, write_case


def main() -> int:
    """Print the three figures. The exit code is 1 if a defect is missed or a finding is wrong."""
    cases, found, wrong = planted_cases(), 0, 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            kinds = [d["kind"] for d in check_deeply(write_case(Path(folder), case["file"]))["defects"]]
            near = check_deeply(write_case(Path(folder), case["near"]))["defects"]
        if sorted(kinds) == sorted([case["kind"], *case.get("also", [])]):
            found += 1
        else:
            print(f"missed: {case['plant']} (found: {', '.join(kinds) or 'nothing'})")
        wrong += bool(near)
        for defect in near:
            print(f"wrong, without {case['plant']}: {defect['message']}")
    with tempfile.TemporaryDirectory() as folder:
        files = [*shipped_files(), *starter_workflows(Path(folder))]
        ours = [(file.name, defect) for file in files for defect in check_deeply(file)["defects"]]
    for name, defect in ours:
        print(f"{name}:{defect['line']}: {defect['kind']}: {defect['message']}")
    print(f"planted defects found: {found} of {len(cases)}")
    print(f"findings in the same files without them: {wrong} of {len(cases)}")
    print(f"findings in {len(files)} workflow files of the repository: {len(ours)}")
    return int(found < len(cases) or bool(wrong) or bool(ours))


if __name__ == "__main__":
    sys.exit(main())
