"""Improves stock agents of several frameworks, unchanged, on the simulated task, and prints a table.

    python contrib/agents/run.py                        # all of them
    python contrib/agents/run.py openai langgraph       # some
    python contrib/agents/run.py openai --null          # the control: prompts make no difference
    python contrib/agents/run.py crewai --newest        # the newest versions

Each framework gets a virtual environment of its own, with the versions of its requirements.txt; the agent in Node gets
its packages beside it. The exit code is 1 where one fails, where a gain is not shown, and, with --null, where one is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from install import PACKAGES, Installed, install  # noqa: E402
from simulate import SimulatedAgentLM  # noqa: E402

from workbench.run import Options, optimize  # noqa: E402
from workbench_testing.simulated import SimulatedPool  # noqa: E402


@dataclass
class Outcome:
    """What a run of one framework's agent gave. before, after: mean scores on val and test."""

    framework: str
    version: str
    slots: str
    val: str
    test: str
    interval: str
    p: str
    calls: int
    seconds: int
    unchanged: str
    shown: bool

    def line(self) -> str:
        return "| " + " | ".join(str(getattr(self, field.name)) for field in fields(self)[:-1]) + " |"


def improve(name: str, installed: Installed, seed: int, helps: bool = True) -> Outcome:
    """Run the optimizer of the agent's workflow.yaml on it, with a simulated model behind the gateway."""
    before = os.environ["PATH"]
    os.environ["PATH"] = os.pathsep.join([*map(str, installed.programs), before])
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        try:
            lm = SimulatedAgentLM(helps=helps)
            out = Path(made, "improved.yaml")
            report = optimize(
                HERE / name / "workflow.yaml",
                database=Path(made, "run.db"),
                pool=SimulatedPool(lm),
                options=Options(out=str(out), sets=[("seed", seed)], allow_unproved=True, keep_unproved=True),
            )
            seconds = round(time.monotonic() - begun)
            slots = yaml.safe_load(out.read_text())["nodes"]["agent"].get("slots", {}) if out.exists() else {}
        finally:
            os.environ["PATH"] = before
    for line in report.lines():
        print(f"  {line}", file=sys.stderr, flush=True)
    proof = report.proof
    return Outcome(
        name,
        installed.version,
        ", ".join(slots) or "none",
        f"{report.baseline['val']:.2f} -> {report.best['val']:.2f}",
        "-" if proof is None else f"{proof.baseline:.2f} -> {proof.baseline + proof.diff:.2f}",
        "-" if proof is None else f"[{proof.ci95[0]:+.2f}, {proof.ci95[1]:+.2f}]",
        "-" if proof is None else f"{proof.p:.1g}",
        lm.requests,
        seconds,
        "yes" if is_unchanged(name) else "NO",
        report.proved,
    )


def is_unchanged(name: str) -> bool:
    """Whether Git shows no difference in the agent's folder."""
    shown = subprocess.run(["git", "status", "--porcelain", "--", name], cwd=HERE, capture_output=True, check=True)
    return not shown.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", nargs="*", help=f"some of {', '.join(PACKAGES)}")
    parser.add_argument("--venvs", type=Path, default=HERE / ".venv", help="folder of the virtual environments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--newest", action="store_true", help="newest versions in place of those of requirements.txt")
    parser.add_argument("--null", action="store_true", help="prompts make no difference to the simulated model")
    asked = parser.parse_args()
    failed = False
    print("| framework | version | slots | val | test | interval | p | calls | s | agent unchanged |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in asked.framework or PACKAGES:
        try:
            # Node looks for modules beside the program.
            place = HERE if (HERE / name / "package.json").exists() else asked.venvs.absolute()
            found = improve(name, install(HERE / name, place, asked.newest), asked.seed, not asked.null)
            print(found.line(), flush=True)
            failed = failed or found.shown == asked.null
        except Exception as error:  # the other frameworks go on
            failed = True
            print(f"| {name} | failed: {type(error).__name__}: {' '.join(str(error).split())[:300]} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
