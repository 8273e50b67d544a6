"""Finds, improves and writes back the texts of stock agents, as the quickstarts of their frameworks have them.

    python contrib/agents/quickstarts/run.py                    # all of them, and those of the folder above
    python contrib/agents/quickstarts/run.py langchain ai_sdk   # some

The first line of an agent names its packages, the second one the page that it is from. Each gets an environment of its
own in a temporary folder (--keep FOLDER keeps them). No model is asked: planted.py answers. Prints a table: README.md
says what its columns are. The exit code is 1 where an agent failed, or a gain was not proved.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from install import Installed, check, install, packages_of  # noqa: E402
from planted import LABELS, PLANTED, Planted, serving  # noqa: E402

LETTERS = {"system": "S", "user": "U", "tool": "T", "parameter": "P", "field": "F", "turn": "X", "file": "file"}
COLUMNS = ("agent", "seen", "slots", "patched", "gain", "applied", "served")
#: Files of an agent's folder that it does not read.
_OURS = {"requirements.txt", "package.json", "workflow.yaml", "node_modules", "__pycache__"}
_WORKBENCH = [sys.executable, "-m", "workbench"]


@dataclass
class Tried:
    """An agent in a folder of its own, with a workflow file for it, w.yaml."""

    name: str
    place: Path
    installed: Installed
    model: Planted
    server: dict[str, str]

    @cached_property
    def source(self) -> Path:
        return next(folder_of(self.name).glob("agent.*"))

    @cached_property
    def env(self) -> dict[str, str]:
        """Ours, with the programs of the agent first."""
        path = os.pathsep.join([*map(str, self.installed.programs), os.environ["PATH"]])
        key = self.server["OPENAI_API_KEY"]
        return {**os.environ, "PATH": path, "WORKBENCH_TRUST": str(self.place), "OPENAI_API_KEY": key}

    @cached_property
    def command(self) -> list[str]:
        return ["node" if self.source.suffix == ".mjs" else "python", f"src/{self.source.name}"]

    @property
    def api(self) -> tuple[str, str]:
        """(provider, base URL) of the API that its client speaks."""
        packages = " ".join(packages_of(self.source.parent))
        if "anthropic" in packages:
            return "anthropic", f"{self.server['ANTHROPIC_BASE_URL']}/v1"
        if "google" in packages and "litellm" not in packages:
            return "gemini", f"{self.server['GOOGLE_GEMINI_BASE_URL']}/v1beta"
        return "openai", self.server["OPENAI_BASE_URL"]

    def prepare(self) -> None:
        """The agent's files in src, and the workflow file."""
        shutil.copytree(self.source.parent, self.place / "src", ignore=shutil.ignore_patterns(*_OURS))
        if self.installed.modules is not None:
            (self.place / "src/node_modules").symlink_to(self.installed.modules)
        shutil.copytree(self.place / "src", self.place / "plain", symlinks=True)
        rows = [{"text": f"row {n}: a {LABELS[n % 4]}-thing", "label": LABELS[n % 4]} for n in range(12)]
        (self.place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        signature = f"text -> label: Literal[{', '.join(map(repr, LABELS))}]"
        node: dict[str, Any] = {"external": signature, "command": self.command, "timeout": 120, "calls": 16}
        if len([*(self.place / "plain").iterdir()]) > 1 + (self.installed.modules is not None):
            node["folder"] = "src"  # it reads files beside it
        if caches := [
            *self.installed.programs[0].parent.glob("lib/*/site-packages/llama_index/core/_static/tiktoken*")
        ]:
            node["env"] = {"TIKTOKEN_CACHE_DIR": str(caches[0])}  # a row's own cache has no tokenizer
        provider, base = self.api
        lm = {"model": f"{provider}/planted", "api_base": base, "api_key_env": "OPENAI_API_KEY"}
        spec = {
            "name": self.name,
            "lm": lm,
            "data": {"file": "rows.jsonl", "split": {"train": 4, "val": 2, "test": 6}},
            "metric": "exact_match(label)",
            "nodes": {"agent": node},
            "optimize": [{"rewrite": {"rounds": 1, "width": 1}}],
            "budget": {"calls": 2000},
            "concurrency": 2,
            "cache": True,
        }
        (self.place / "w.yaml").write_text(yaml.safe_dump(spec))

    def ask(self, *words: str) -> str:
        """What a command of workbench prints. Raises RuntimeError if it fails."""
        return check([*_WORKBENCH, *words], self.place, env=self.env)

    def find(self) -> tuple[dict[str, Any], int]:
        """(its slots, how many texts of the framework were left out); o.yaml has the slots with PLANTED in each."""
        found = json.loads(self.ask("agent", "slots", "w.yaml", "--rows", "4", "--out", "o.yaml", "--json"))
        result = yaml.safe_load((self.place / "o.yaml").read_text())
        slots = result["nodes"]["agent"].get("slots") or {}
        for slot in slots.values():
            slot["text"] = f"{slot['match']}\n{PLANTED}"
        (self.place / "o.yaml").write_text(yaml.safe_dump(result, allow_unicode=True))
        return slots, len(found["left_out"])

    def improve(self) -> str:
        """The gain that `optimize` proves."""
        told = json.loads(self.ask("optimize", "w.yaml", "--out", "best.yaml", "--json"))
        gain = told.get("gain") or {}
        return f"{gain['diff']:+.2f}, p = {gain['p']:.2f}" if gain.get("shown") else "NO"

    def apply(self, slots: dict[str, Any]) -> str:
        """How many texts were written into its source, and why others were not."""
        done = subprocess.run(
            [*_WORKBENCH, "agent", "apply", "o.yaml", "--to", "src", "--write"],
            cwd=self.place,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        told = [line for line in done.stderr.splitlines() if line.startswith(("nodes.", "Nothing", "Error"))]
        reasons = "; ".join(
            line.removeprefix("nodes.agent.slots.").replace(str(self.place), ".").replace("|", "/")[:160]
            for line in told
        )
        nothing = any(not line.startswith("nodes.") for line in told)
        number = 0 if nothing else len(slots) - len(told)
        return f"{number} of {len(slots)}{f': {reasons}' if reasons else ''}"

    def serve(self, slots: dict[str, Any]) -> str:
        """Run the unchanged agent with the variables that `workbench agent gateway` prints.

        A file passes no gateway: an agent whose texts are all in files is served as it was.
        """
        passes = any(slot["in"] != "file" for slot in slots.values())
        row, right = '{"text": "row 1: a b-thing"}', "b" if passes else "c"
        command = [*_WORKBENCH, "agent", "gateway", "o.yaml", "--port", "0"]
        with subprocess.Popen(
            command, cwd=self.place, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as gateway:
            assert gateway.stderr is not None and gateway.stdout is not None
            try:
                gateway.stderr.readline()
                variables: dict[str, str] = {}
                while not self.server.keys() <= variables.keys():
                    name, _, value = gateway.stdout.readline().rstrip().partition("=")
                    variables[name] = value
                done = subprocess.run(
                    [self.command[0], self.source.name],
                    cwd=self.place / "plain",
                    env={"HOME": str(self.place), "PATH": self.env["PATH"], **variables},
                    input=row,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=120,
                )
                answer = done.stdout.strip()
                if done.returncode or answer != right:
                    return f"NO: {(answer or done.stderr)[-80:]}"
                return "yes" if passes else "yes, but for its files"
            finally:
                gateway.terminate()


def try_agent(name: str, envs: Path, model: Planted, server: dict[str, str]) -> list[str]:
    """The cells of its line."""
    installed = install(folder_of(name), envs)
    with tempfile.TemporaryDirectory() as made:
        tried = Tried(name, Path(made).resolve(), installed, model, server)
        tried.prepare()
        asked = model.asked
        slots, vendors = tried.find()
        seen = "yes" if model.asked > asked else "NO"
        planted = model.planted
        gain = tried.improve()
        patched = "yes" if model.planted > planted else "NO"
        served = tried.serve(slots)
        applied = tried.apply(slots)
        kinds = " ".join(dict.fromkeys(LETTERS[slot["in"]] for slot in slots.values()))
        out = f" (+{vendors} of the framework)" if vendors else ""
        return [f"{name}, {installed.framework}", seen, f"{kinds}{out}", patched, gain, applied, served]


def folder_of(name: str) -> Path:
    """A quickstart is here, or it is one of those that run.py above tries on more rows."""
    return HERE / name if (HERE / name).is_dir() else HERE.parent / name


def names_of_agents() -> list[str]:
    return sorted({path.parent.name for place in (HERE, HERE.parent) for path in place.glob("*/agent.*")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = names_of_agents()
    parser.add_argument("agent", nargs="*", help=f"some of {', '.join(names)}")
    parser.add_argument("--keep", type=Path, help="folder of the environments, which stay there")
    parser.add_argument("--write", action="store_true", help="write the lines into README.md")
    asked = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    model, failed = Planted(), False
    with tempfile.TemporaryDirectory() as made, serving(model) as server:
        for name in asked.agent or names:
            model.refused.clear()
            try:
                cells = try_agent(name, (asked.keep or Path(made)).resolve(), model, server)
                failed = failed or "NO" in "".join(cells)
            except Exception as error:  # the others go on
                words = f"{model.refused[-1]}, said the server; " if model.refused else ""
                cells = [name, f"failed: {words}{' '.join(str(error).split())[:300]}".replace("|", "/")]
                cells, failed = [*cells, *[""] * (len(COLUMNS) - 2)], True
            line = f"| {' | '.join(cells)} |"
            print(line, flush=True)
            if asked.write:
                write_line(name, line, names)
    sys.exit(failed)


def write_line(name: str, line: str, names: list[str]) -> None:
    """Put a line into the table of README.md; agents that were never run are told so."""
    page = HERE / "README.md"
    begin, end = "<!-- table -->\n", "<!-- end of table -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    table, _, after = rest.partition(end)
    lines = {row.split("|")[1].strip().partition(",")[0]: row for row in table.splitlines()[2:]}
    lines[name] = line
    rows = [lines.get(one, f"| {one} | not run |{' |' * (len(COLUMNS) - 2)}") for one in names]
    head = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    page.write_text(before + begin + "\n".join([*head, *rows, ""]) + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
