"""Every command and YAML block in README and docs works, and the generated pages are up to date."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli import cli
from workbench_nano.model import Chat, Completion, Nano

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "plugins").rglob("*.md")),
]
#: A block; indented, it is part of a step. (indentation, language, text), with the headings between.
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$|^#+ [^\n]*$", re.MULTILINE | re.DOTALL)
#: The README's two installations: `.ci/run` runs the one, and tests/whole/test_wheels.py installs what the other names.
INSTALLS = ("pip install -r requirements.txt", "pip install -r requirements-test.txt && pytest")

#: Of the quickstart a fifth; tests/whole/test_gallery.py runs it whole.
SPLIT = ("{train: 60, val: 60, test: 200}", "{train: 20, val: 30, test: 60}")
TRIALS = ("trials: 14", "trials: 4")


def page_blocks(page: Path, language: str) -> list[str]:
    """The blocks of a page. The steps below one heading are one block of commands, since each needs the ones before."""
    found, steps = list[str](), list[str]()
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if match.group(2) is None:
            found, steps = [*found, "".join(steps)], []
        elif match.group(2) == language:
            text = textwrap.dedent(match.group(3))
            (steps if match.group(1) and language == "bash" else found).append(text)
    return [text for text in (*found, "".join(steps)) if text]


def blocks(language: str) -> list:
    """One for each text: the same commands stand on several pages, and a block may begin as another one does."""
    found: dict[str, str] = {}
    for page in PAGES:
        for number, text in enumerate(page_blocks(page, language)):
            found.setdefault(runnable(text), f"{page.relative_to(ROOT)}:{number}")
    assert len(found) >= 15, f"{len(found)} blocks of {language}"
    return [
        pytest.param(text, id=place)
        for text, place in found.items()
        if not any(other != text and other.startswith(text) for other in found)
    ]


def runnable(text: str) -> str:
    """A block without its installations, and without what installs for development and runs these tests."""
    lines = [line.removeprefix(f"{INSTALLS[0]} && ") for line in text.splitlines() if not line.startswith(INSTALLS[1])]
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def checkout(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what a reader's commands may touch, as the current folder. Large folders: if the block names them."""
    unused = [name for name in ("gallery", "synthesis", "contrib/agents") if name not in text]
    ignored = shutil.ignore_patterns(*unused, "node_modules", ".venv", "__pycache__")
    for folder in {"workflows", "contrib/agents"}.difference(unused):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    quickstart = tmp_path / "workflows/quickstart.yaml"
    quickstart.write_text(quickstart.read_text(encoding="utf-8").replace(*SPLIT).replace(*TRIALS), encoding="utf-8")
    (tmp_path / "metrics.py").write_text(metric_code(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


ANSWERS: dict[Any, Completion] = {}


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks optimize the same files: the bundled model answers each of their requests once."""
    generate = Nano.generate

    def answer(nano: Nano, chats: Sequence[Chat], *, temperature: Any, seeds: Any, **settings: Any) -> list[Completion]:
        keys = [json.dumps(one) for one in zip(chats, temperature, seeds, [settings] * len(chats), strict=True)]
        new = {key: row for row, key in enumerate(keys) if key not in ANSWERS}
        rows = new.values()
        made = generate(
            nano,
            [chats[row] for row in rows],
            temperature=[temperature[row] for row in rows],
            seeds=[seeds[row] for row in rows],
            **settings,
        )
        ANSWERS.update(zip(new, made, strict=True))
        return [ANSWERS[key] for key in keys]

    monkeypatch.setattr(Nano, "generate", answer)


def metric_code() -> str:
    return page_blocks(ROOT / "docs/how-to/own-metric.md", "python")[0]


def workbench(*args: str) -> str:
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 0, f"workbench {' '.join(args)}\n{done.output}"
    return done.output


@pytest.mark.slow
@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_block_is_a_valid_workflow(text: str, checkout: Path) -> None:
    (checkout / "block.yaml").write_text(text, encoding="utf-8")
    told = workbench("validate", "--deep", "--run-code", "block.yaml")
    assert "is not searched" not in told, "a reader copies it, and is warned"


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("text", blocks("bash"))
def test_bash_block_runs(text: str) -> None:
    for line in text.splitlines():
        if words := shlex.split(line, comments=True):
            assert words[0] == "workbench", f"a bash block in the docs runs something else: {line}"
            workbench(*words[1:])


@pytest.mark.slow
@pytest.mark.parametrize("text", blocks("python"))
def test_python_block_runs(text: str, checkout: Path) -> None:
    (checkout / "block.py").write_text(text, encoding="utf-8")
    runpy.run_path("block.py", run_name="__main__")


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nRun: python docs/generate.py"


def test_every_key_has_a_description_and_a_type_that_a_user_knows() -> None:
    written = [page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.md")]
    for page in (ROOT / "plugins").glob("*/workbench_*/README.md"):
        written += re.findall(r"<!-- parameters of .*?<!-- end of", page.read_text(encoding="utf-8"), re.DOTALL)
    rows = [line for text in written for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 500
    assert [row for row in rows if row.endswith("|  |") or "workbench_" in row] == []


def leads(page: Path) -> set[Path]:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / to).resolve() for to in links if "://" not in to}


def test_friction_31_the_contents_lead_to_each_page_and_plugin() -> None:
    """The pages of plugins stand in the catalogue alone."""
    index, readme, catalogue = ROOT / "docs/index.md", ROOT / "README.md", ROOT / "docs/reference/plugins.md"
    pages = {*(ROOT / "docs").rglob("*.md")} - {index}
    assert pages <= leads(index), pages - leads(index)
    assert {*(ROOT / "plugins").glob("*/workbench_*/README.md")} <= leads(catalogue)
    assert index in leads(readme), "the README is short, and leads there"
    _, _, rest = readme.read_text(encoding="utf-8").partition("<!-- contents")
    assert rest.partition("<!-- end")[0].count("](") == 10


#: What a reader of the code looks for, and the page or file that has it.
LOOKED_FOR = {
    "how a gain is tested": "core/workbench/proof/statistics.py",
    "what an optimizer gets": "core/workbench/study/study.py",
    "where a call is paid": "core/workbench/ledger/ledger.py",
    "the SQL of a call": "core/workbench/store/journal.py",
    "what is retried": "core/workbench/errors/failures.py",
    "what a plugin may add": "docs/reference/hooks.md",
    "which flag wins over which setting": "docs/reference/cli.md",
    "where optimized.yaml is written": "core/workbench/task/write.py",
    "the prompt of predict": "plugins/kit/workbench_kit/prompting/plain_adapter.py",
    "the loss of grpo": "plugins/training/workbench_training/loss.py",
    "what the gateway refuses": "plugins/agents/workbench_external/gateway/access.py",
}


def test_what_one_looks_for_is_two_or_three_links_from_the_readme() -> None:
    steps, now = {ROOT / "README.md": 0}, {ROOT / "README.md"}
    for step in range(1, 4):
        found = {to for page in now if page.suffix == ".md" and page.is_file() for to in leads(page)}
        now = found - {*steps}
        steps |= dict.fromkeys(now, step)
    counts = [steps.get(ROOT / file, 9) for file in LOOKED_FOR.values()]
    assert max(counts) <= 3 and sum(counts) <= 2.5 * len(counts), dict(zip(LOOKED_FOR, counts, strict=True))


def test_the_page_of_each_plugin_says_near_its_head_where_its_code_is() -> None:
    """One to four files. `test_every_link_leads_somewhere` holds that they are there."""
    wrong = dict[str, str]()
    for page in (ROOT / "plugins").glob("*/workbench_*/README.md"):
        head = "\n".join(page.read_text(encoding="utf-8").splitlines()[:30])
        found = re.search(r"^In the code: (.+?)\n\n", head, re.MULTILINE | re.DOTALL)
        named = re.findall(r"\]\(([^)]+\.py)\)", found.group(1)) if found else []
        if not 1 <= len(named) <= 4:
            wrong[page.parent.name] = found.group(0) if found else "no line"
    assert not wrong, wrong


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, broken
