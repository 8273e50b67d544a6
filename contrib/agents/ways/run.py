"""Try `workbench agent init` on programs that are fed and answer in different ways. README.md says how."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "quickstarts")]

from install import check  # noqa: E402
from planted import Planted, answer_as_asked, check_request, serving  # noqa: E402

from workbench.lm import Response  # noqa: E402
from workbench_external.gateway import Ask  # noqa: E402

DESKS = ("billing", "technical", "shipping", "returns")
COLUMNS = ("program", "input", "answer", "folder", "slots", "starts", "no edit")
_WORKBENCH = [sys.executable, "-m", "workbench"]
_LETTER = re.compile(r"order (\d+) of")
_KEY, _TAG = re.compile(r'"(\w+)": "'), re.compile(r"in <(\w+)>")
#: A program that reads no input is to be refused.
REFUSED = {"constant"}


class Clerk(Planted):
    """A model that names the desk of a letter, in the form that the prompt asks for."""

    async def complete(self, ask: Ask) -> Sequence[Response]:
        assert ask.native is not None
        check_request(ask.native.api, ask.native.body)
        self.asked += 1
        said = "\n".join(str(message.get("content")) for message in ask.messages)
        found = _LETTER.search(said)
        desk = DESKS[int(found[1]) % 4] if found else "nothing"
        response = answer_as_asked(ask, desk)
        if response.text == desk and "JSON" in said:
            response = Response(json.dumps(dict.fromkeys(_KEY.findall(said), desk)), "stop", 1, 1, 0.0)
        elif response.text == desk and (tags := _TAG.findall(said)):
            response = Response("".join(f"<{tag}>{desk}</{tag}>" for tag in tags), "stop", 1, 1, 0.0)
        return [response] * ask.samples


def packages_of(name: str) -> list[str]:
    first = source_of(HERE / name).read_text(encoding="utf-8").splitlines()[0]
    return [] if first.startswith("#!") else [part.strip() for part in first.lstrip("/# ").split(",") if part.strip()]


def words_of(name: str) -> list[str]:
    """The words behind `workbench agent init`."""
    source = source_of(HERE / name)
    found = re.search(r"(?m)^(?:#|//) init: (.+)$", source.read_text(encoding="utf-8"))
    return found[1].split() if found else [source.name]


def source_of(folder: Path) -> Path:
    return next(path for path in sorted(folder.rglob("agent.*")) if "node_modules" not in path.parts)


def install(names: Sequence[str], keep: Path) -> None:
    """Install the packages of all programs: of Python in one environment, of Node in one folder."""
    keep.mkdir(parents=True, exist_ok=True)
    scripts = {name for name in names if source_of(HERE / name).suffix in (".js", ".mjs", ".ts")}
    if not (keep / "python").exists():
        check([sys.executable, "-m", "venv", str(keep / "python")], keep)
        needed = sorted({package for name in names if name not in scripts for package in packages_of(name)})
        check([str(keep / "python/bin/pip"), "install", "--quiet", *needed], keep)
    if not (keep / "node_modules").exists() and scripts:
        needed = sorted({package for name in scripts for package in packages_of(name)})
        check(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(keep), *needed], keep)


def write_rows(place: Path) -> None:
    with place.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "customer", "text", "label"])
        for n in range(16):
            rows.writerow(
                [n, f"Customer {n}", f"About order {n} of last week: I am not happy, please help me.", DESKS[n % 4]]
            )


def try_program(name: str, keep: Path, server: dict[str, str], place: Path) -> list[str]:
    """The cells of its line."""
    shutil.copytree(HERE / name, place, dirs_exist_ok=True)
    if source_of(HERE / name).suffix in (".js", ".mjs", ".ts"):
        (place / "node_modules").symlink_to(keep / "node_modules")
    write_rows(place / "rows.csv")
    path = os.pathsep.join([str(keep / "python/bin"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(place.parent / "config"), **server}
    env.pop("VIRTUAL_ENV", None)
    words = words_of(name)
    begin = [*_WORKBENCH, "agent", "init", "--data", "rows.csv", *words]
    done = subprocess.run(begin, cwd=place, env=env, capture_output=True, text=True, check=False)
    told = done.stderr.strip()
    if done.returncode:
        right = name in REFUSED and "asked its model, but never with the text of the row" in told
        return [name, *[""] * 5, f"{'refused, rightly' if right else 'NO'}: {_last(told)}"]
    node: dict[str, Any] = yaml.safe_load((place / "workflow.yaml").read_text(encoding="utf-8"))["nodes"]["agent"]
    slots = re.search(r"# slots: (\d+)", (place / "workflow.yaml").read_text(encoding="utf-8"))
    starts = re.search(r"(\d+) starts of the agent", told)
    shown = node.get("stdin", "function")
    if shown == "none":
        shown = " ".join(node["command"][-2:] if node["command"][-2].startswith("--") else node["command"][-1:])
    shown = shown.replace("|", "\\|")
    cells = [name, f"`{shown}`", f"`{node['output']}`", node.get("folder", "none"), slots[1] if slots else ""]
    return [*cells, starts[1] if starts else "", evaluate(place, env)]


def evaluate(place: Path, env: dict[str, str]) -> str:
    """Run the file as it was written on rows of val, where each answer is right."""
    done = subprocess.run(
        [*_WORKBENCH, "eval", "workflow.yaml", "--json"],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return f"NO: {_last(done.stderr)}"
    score, failed = report.get("score"), report.get("failures")
    return "yes" if score == 1.0 and not failed else f"NO: score {score}, failures {failed}"


def _last(told: str) -> str:
    lines = [line for line in told.splitlines() if line.strip()]
    shown = next((line for line in lines if "Error" in line or line.startswith("error")), lines[-1] if lines else "")
    return shown.replace("|", "/")[:200]


def main() -> None:
    names = sorted(path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="*", help=f"some of {', '.join(names)}")
    parser.add_argument("--keep", type=Path, help="folder of the packages, which stay there")
    parser.add_argument("--write", action="store_true", help="write the table into README.md")
    asked = parser.parse_args()
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    model = Clerk()
    with tempfile.TemporaryDirectory() as made, serving(model) as server:
        keep = (asked.keep or Path(made, "keep")).resolve()
        install(names, keep)
        for name in asked.program or names:
            place = Path(made, "tried", name, "agent")
            place.mkdir(parents=True)
            lines.append(f"| {' | '.join(try_program(name, keep, server, place))} |")
            sys.stdout.write(f"{lines[-1]}\n")
            sys.stdout.flush()
    if asked.write:
        page = HERE / "README.md"
        before, mark, rest = page.read_text(encoding="utf-8").partition("<!-- table -->\n")
        after = rest[rest.index("<!-- end of table -->") :]
        page.write_text(before + mark + "\n".join(lines) + "\n" + after, encoding="utf-8")


if __name__ == "__main__":
    main()
