"""Runs the tests of what depends on a fast package with another version of it, before our bounds allow that version.

    python contrib/newest.py dspy            # the newest DSPy; then once more without LiteLLM
    python contrib/newest.py transformers    # the newest
    python contrib/newest.py transformers-5.20    # the one that vLLM forces
    python contrib/newest.py dspy --dry-run  # only prints the commands

It changes the environment that it runs in, so that needs to be one of its own. The exit code is that of the first
command that fails.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP, PYTEST = [sys.executable, "-m", "pip"], [sys.executable, "-m", "pytest", "-n", "2", "-m", ""]
_TRAINING = ["tests/plugins/training", "tests/plugins/hf"]
#: By case, what is run in turn: arguments of pip, and folders of tests.
CASES: dict[str, list[list[str]]] = {
    "dspy": [
        ["install", "--upgrade", "dspy"],
        ["tests/plugins/dspy", "tests/plugins/litellm", "tests/plugins/predict", "tests/plugins/import_"],
        ["uninstall", "--yes", "litellm"],
        [
            "tests/plugins/dspy",
            "tests/plugins/litellm/test_without_litellm.py",
            "tests/plugins/litellm/test_reading.py",
        ],
    ],
    "transformers": [["install", "--upgrade", "transformers"], _TRAINING],
    "transformers-5.20": [["install", "--upgrade", "transformers==5.20.*"], _TRAINING],
}


def commands(case: str) -> list[list[str]]:
    """The commands of a case, in order."""
    return [[*(PYTEST if step[0].startswith("tests") else PIP), *step] for step in CASES[case]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run none")
    args = parser.parse_args()
    for command in commands(args.case):
        print("$", shlex.join(command), flush=True)
        if not args.dry_run:
            if code := subprocess.run(command, cwd=ROOT).returncode:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
