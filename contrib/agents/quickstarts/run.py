"""Finds, replaces and writes back the texts of stock agents, as the quickstarts of their frameworks have them.

    python contrib/agents/quickstarts/run.py                    # all of them
    python contrib/agents/quickstarts/run.py langchain ai_sdk   # some

The first line of an agent names its packages. Each gets a virtual environment, or a `node_modules`, of its own in a
temporary folder (--keep FOLDER keeps them). No model is asked: a stand-in answers. The rewrite is the plainest there
is: the old text, a line break, and one sentence. Prints a table: README.md says what its columns are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from workbench.gateway import Ask, Gateway
from workbench.lm import Response
from workbench.workflow import parse_signature
from workbench_external.trial import stand_in_answer

HERE = Path(__file__).parent
LETTERS = {"system": "S", "user": "U", "tool": "T", "parameter": "P", "field": "F", "turn": "X", "file": "file"}


def install(name: str, place: Path) -> tuple[str, str]:
    """The program that an agent is started with, and the versions of its packages."""
    source = next((HERE / name).glob("agent.*"))
    packages = [part.strip() for part in source.read_text().splitlines()[0].lstrip("/# ").split(",")]
    home = place / name
    if source.suffix == ".py":
        python = home / "bin/python"
        if not python.exists():
            venv.create(home, with_pip=True)
            check([str(python), "-m", "pip", "install", "-q", *packages], home)
        first = packages[0].partition("[")[0]
        version = check([str(python), "-c", f"import importlib.metadata as m; print(m.version('{first}'))"], home)
        return str(python), f"{first} {version}"
    if not (home / "node_modules").exists():
        home.mkdir(parents=True, exist_ok=True)
        check(["npm", "init", "-y"], home)
        check(["npm", "install", "--silent", *packages], home)
    first = re.sub(r"(?<=.)@\d+\Z", "", packages[0])
    version = json.loads((home / "node_modules" / first / "package.json").read_text())["version"]
    return shutil.which("node") or "node", f"{first} {version}"


def check(command: list[str], folder: Path, **further: Any) -> str:
    """What a command prints. Raises RuntimeError if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900, **further)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout.strip()


class StandIn:
    """A model that calls each tool once, and then answers with a letter."""

    async def complete(self, ask: Ask) -> Sequence[Response]:
        return [stand_in_answer(ask, parse_signature("text -> label: Literal['a', 'b', 'c', 'd']"))] * ask.samples

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        return [[1.0] for _ in texts], 0

    def models(self) -> Sequence[str]:
        return ["stand-in"]


@contextmanager
def stand_in() -> Iterator[dict[str, str]]:
    """The variables of a server behind which the model stands."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def begin() -> dict[str, str]:
        gateway = await Gateway.open()
        return gateway.environment(gateway.admit(StandIn()), {})

    yield asyncio.run_coroutine_threadsafe(begin(), loop).result()
    loop.call_soon_threadsafe(loop.stop)


def try_agent(name: str, venvs: Path, model: dict[str, str]) -> str:
    """The line of the table."""
    program, version = install(name, venvs)
    source = next((HERE / name).glob("agent.*"))
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        (place / "src").mkdir()
        shutil.copy(source, place / "src")
        if source.suffix == ".mjs":
            (place / "src/node_modules").symlink_to(venvs / name / "node_modules")
        shutil.copytree(place / "src", place / "plain", symlinks=True)
        rows = [{"text": f"row {n}: a {'abcd'[n % 4]}-thing", "label": "abcd"[n % 4]} for n in range(12)]
        (place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        node = {"external": "text -> label", "command": [program, f"src/{source.name}"], "timeout": 120}
        lm = {"model": "openai/stand-in", "api_base": model["OPENAI_BASE_URL"], "api_key_env": "OPENAI_API_KEY"}
        # A row's own cache has no tokenizer: that of the package does.
        if caches := [*(venvs / name).glob("lib/*/site-packages/llama_index/core/_static/tiktoken_cache")]:
            node["env"] = {"TIKTOKEN_CACHE_DIR": str(caches[0])}
        spec = {"name": name, "lm": lm, "data": "rows.jsonl", "metric": "exact_match(label)"}
        (place / "w.yaml").write_text(yaml.safe_dump({**spec, "nodes": {"agent": node}, "budget": {"calls": 200}}))
        command = [sys.executable, "-m", "workbench"]
        env = {**os.environ, "WORKBENCH_TRUST": str(place), "OPENAI_API_KEY": model["OPENAI_API_KEY"]}
        found = json.loads(
            check([*command, "slots", "w.yaml", "--rows", "2", "--out", "o.yaml", "--json"], place, env=env)
        )
        result = yaml.safe_load((place / "o.yaml").read_text())
        slots = result["nodes"]["agent"]["slots"]
        for slot in slots.values():
            slot["text"] = f"{slot['match']}\nRead it carefully."
        (place / "o.yaml").write_text(yaml.safe_dump(result, allow_unicode=True))
        applied = subprocess.run(
            [*command, "apply", "o.yaml", "--to", "src", "--write"],
            cwd=place,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        left = [line for line in applied.stderr.splitlines() if line.startswith(("nodes.", "Nothing"))]
        reasons = "; ".join(line.removeprefix("nodes.agent.slots.").replace(str(place), ".")[:160] for line in left)
        number = 0 if any(line.startswith("Nothing") for line in left) else len(slots) - len(left)
        kinds = " ".join(dict.fromkeys(LETTERS[slot["in"]] for slot in slots.values()))
        out = f" (+{len(found['left_out'])} of the framework)" if found["left_out"] else ""
        served = try_served(place, [program, str(place / "plain" / source.name)], env)
        wrote = f"{number} of {len(slots)}{f': {reasons}' if reasons else ''}"
        return f"| {name}, {version} | yes | {kinds}{out} | {wrote} | {served} |"


def try_served(place: Path, agent: list[str], env: dict[str, str]) -> str:
    """Whether the agent gets an answer with the variables that `workbench gateway` prints."""
    command = [sys.executable, "-m", "workbench", "gateway", "o.yaml", "--port", "0"]
    with subprocess.Popen(
        command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as gateway:
        assert gateway.stderr is not None and gateway.stdout is not None
        try:
            gateway.stderr.readline()
            variables: dict[str, str] = {}
            while "ANTHROPIC_AUTH_TOKEN" not in variables or "OPENAI_BASE_URL" not in variables:
                name, _, value = gateway.stdout.readline().rstrip().partition("=")
                variables[name] = value
            quiet = {"HOME": str(place), "OPENAI_AGENTS_DISABLE_TRACING": "1", "PATH": os.environ["PATH"]}
            done = subprocess.run(
                agent,
                cwd=place,
                env={**quiet, **variables},
                input='{"text": "row 1: a b-thing"}',
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            return "yes" if done.returncode == 0 and done.stdout.strip() else "NO"
        finally:
            gateway.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.parent.name for path in HERE.glob("*/agent.*"))
    parser.add_argument("agent", nargs="*", help=f"some of {', '.join(names)}")
    parser.add_argument("--keep", type=Path, help="folder of the environments, which stay there")
    parser.add_argument("--write", action="store_true", help="write the lines into README.md")
    asked = parser.parse_args()
    print("| agent | seen | slots | applied | served |\n| --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as made, stand_in() as model:
        for name in asked.agent or names:
            try:
                line = try_agent(name, (asked.keep or Path(made)).resolve(), model)
            except Exception as error:  # the others go on
                line = f"| {name} | failed: {' '.join(str(error).split())[:300]} | | | |"
            print(line, flush=True)
            if asked.write:
                write_line(name, line, names)


def write_line(name: str, line: str, names: list[str]) -> None:
    """Put a line into the table of README.md; agents that were never run are told so."""
    page = HERE / "README.md"
    before, head, rest = page.read_text(encoding="utf-8").partition("| --- | --- | --- | --- | --- |\n")
    table, end, after = rest.partition("<!-- end of table -->")
    lines = {row.split("|")[1].strip().partition(",")[0]: row for row in table.splitlines()}
    lines[name] = line
    rows = [lines.get(one, f"| {one} | not run | | | |") for one in names]
    page.write_text(before + head + "\n".join(rows) + "\n" + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
