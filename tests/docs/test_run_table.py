"""The command that writes a table of contrib/bench/LOG.md anew."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("run_table", ROOT / "docs" / "run_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PAGE = tmp_path / "benchmarks.md"

    def run(name: str) -> str:
        monkeypatch.setattr(sys, "argv", ["run_table.py", name])
        module.main()
        return module.PAGE.read_text()

    run.page = module.PAGE  # type: ignore[attr-defined]
    return run


def write(page: Path, *commands: str) -> None:
    lines = "".join(f"    {command}\n" for command in commands)
    page.write_text(f"Before.\n\n<!-- table a -->\n\n{lines}\nOld.\n\n| x |\n\n<!-- end of table -->\n\nAfter.\n")


def test_a_table_is_what_its_commands_print_with_date_version_and_commit(run_table: Any) -> None:
    write(
        run_table.page,
        r"printf 'noise\n| a | b |\n| --- | --- |\n| 1 | 2 |\n'  # long",
        r"printf '| a | b |\n| 3 | 4 |\n'",
    )
    text = run_table("a")
    assert re.search(r"Of \d+ \w+ 20\d\d \([0-9a-f]{8}(, changed)?, workbench \d+\.\d+\.\d+\)\.", text)
    assert "\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n\n<!-- end of table -->\n\nAfter.\n" in text
    assert "Old" not in text and "\nnoise" not in text
    assert run_table("a") == text, "the commands are still there"


@pytest.mark.parametrize(
    ("command", "said"),
    [("exit 3", "exit code 3"), ("echo nothing", "no line begins with |")],
)
def test_what_prints_no_table_leaves_the_page(run_table: Any, command: str, said: str) -> None:
    write(run_table.page, command)
    before = run_table.page.read_text()
    with pytest.raises(SystemExit, match=re.escape(said)):
        run_table("a")
    with pytest.raises(SystemExit, match="there is no table 'b'.*there are: a"):
        run_table("b")
    assert run_table.page.read_text() == before


def test_the_tables_of_the_page_are_found_by_it() -> None:
    page = (ROOT / "contrib" / "bench" / "LOG.md").read_text()
    named = re.findall(r"<!-- table (\S+) -->\n\n(?:    .*\n)+\nOf [^\n]+, workbench [^\n]+\)\.\n", page)
    assert named and len(named) == page.count("<!-- table ") == page.count("<!-- end of table -->")
