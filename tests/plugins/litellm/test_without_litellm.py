"""LiteLLM is needed for the models that only it reaches: everything else works without it (issue 33, point 9)."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.dspy_35 import without_litellm
from tests.helpers.lm_faults import ChatServer

from workbench.errors import LMError, SpecError
from workbench.lm import Request, make_lm
from workbench.spec import lm_spec
from workbench_litellm import provider

ROOT = Path(__file__).parents[3]
#: Neither can be imported, in a process and in those that it starts.
BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dspy", "litellm"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
AGENT = """
name: agent
lm: bundled/nano
data: {file: workflows/data/tickets.jsonl, split: {train: 1, val: 2, test: 1}}
metric: exact_match(label)
nodes:
  agent:
    external: "text -> label: Literal['billing', 'technical', 'shipping', 'returns', 'account']"
    command: [python, workflows/sorter.py]
"""


@pytest.fixture
def uninstalled() -> Iterator[None]:
    with without_litellm():
        yield
        assert "litellm" not in sys.modules


@pytest.mark.parametrize("model", ["openrouter/a/b", "groq/x", "deepseek/x", "ollama_chat/x", "xai/x"])
def test_models_that_dspy_serves_itself_need_no_litellm(model: str, uninstalled: None) -> None:
    with ChatServer() as server:
        lm: Any = make_lm(lm_spec({"model": model, "api_base": server.base}))
        lm.ready()

        async def main() -> Any:
            try:
                return await lm.complete(Request(({"role": "user", "content": "hello"},)))
            finally:
                await lm.aclose()

        assert asyncio.run(main()).text == "hello" and server.requests == 1


@pytest.mark.parametrize(
    ("model", "variable"), [("anthropic/x", "ANTHROPIC"), ("gemini/x", "GEMINI"), ("groq/x", "GROQ")]
)
def test_their_keys_are_asked_for_without_it(
    model: str, variable: str, uninstalled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    lm: Any = make_lm(lm_spec(model))
    with pytest.raises(LMError, match=f"set the variable {variable}_API_KEY") as raised:
        lm.ready()
    assert raised.value.kind == "auth"
    if model == "gemini/x":
        monkeypatch.setenv("GOOGLE_API_KEY", "k-0123456789")
        assert lm.ready() is None, "either of its two names will do"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("litellm/bedrock/x", "its prefix asks for LiteLLM"),
        ("litellm:anthropic/x", "its prefix asks for LiteLLM"),
        ("bedrock/x", "DSPy's own client does not serve it"),
        ("mistral/x", "DSPy's own client does not serve it"),
        ({"model": "groq/x", "extra": {"engine": "litellm"}}, "with these settings"),
        ({"model": "groq/x", "extra": {"headers": {"a": "b"}}}, "with these settings"),
    ],
    ids=str,
)
def test_what_needs_it_names_the_extra_and_sends_nothing(settings: Any, why: str, uninstalled: None) -> None:
    with pytest.raises(SpecError, match="needs LiteLLM, which is not installed") as raised:
        make_lm(lm_spec(settings))
    assert why in raised.value.message and "pip install -e './plugins/dspy[litellm]'" in (raised.value.hint or "")


def test_vectors_name_the_extra_too(uninstalled: None) -> None:
    lm: Any = make_lm(lm_spec("gemini/x"))
    with pytest.raises(LMError, match=r"\./plugins/dspy\[litellm\]") as raised:
        asyncio.run(lm.embed(["hello"]))
    assert raised.value.kind == "unsupported"


def test_a_mistyped_prefix_is_found_by_those_that_dspy_knows(uninstalled: None) -> None:
    assert {"anthropic", "gemini", "openrouter"} <= provider.anything.providers()  # type: ignore[attr-defined]


def run(folder: Path, *arguments: str) -> str:
    (folder / "block").mkdir(exist_ok=True)
    (folder / "block" / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    if not (folder / "workflows").exists():
        shutil.copytree(ROOT / "workflows", folder / "workflows")
    places = [str(folder / "block"), str(ROOT / "core"), str(ROOT / "plugins")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "WORKBENCH_TRUST": str(folder)}
    command = [sys.executable, "-m", "workbench", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_gateway_and_a_run_import_neither_dspy_nor_litellm(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(AGENT, encoding="utf-8")
    assert "on 2 rows" in run(tmp_path, "eval", "agent.yaml", "--split", "val")


@pytest.mark.slow
def test_the_commands_of_the_readme_import_neither_dspy_nor_litellm(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    commands = [shlex.split(line) for line in re.findall(r"workbench ([a-z].*)", blocks)]
    assert [c[0] for c in commands] == ["optimize", "init", "eval", "optimize", "compare", "predict"]
    for command in commands:
        run(tmp_path, *command, *(["--budget-calls", "300", "--allow-unproved"] if command[0] == "optimize" else []))
    for name in ("report.html", "report.md", "report.json"):
        run(tmp_path, "report", "last", "--out", name)
        assert (tmp_path / name).stat().st_size > 200
