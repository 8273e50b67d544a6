"""The documentation site: it is built strictly, leads everywhere, and fetches nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("material", reason="the extra `docs` is not installed")


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(root: Path, to: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        "docs/site/mkdocs.yml",
        "-d",
        str(to),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site")
    done = build(ROOT, to)
    assert done.returncode == 0, done.stdout + done.stderr
    return to


@pytest.mark.slow
def test_every_page_and_plugin_is_on_the_site_and_in_its_search(site: Path) -> None:
    docs = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    plugins = {
        Path("plugins") / f"{path.parent.name}.html" for path in (ROOT / "plugins").glob("*/workbench_*/README.md")
    }
    wanted = docs | plugins | {Path("changelog.html"), Path("contributing.html")}
    assert len(plugins) > 40 and [page for page in wanted if not (site / page).exists()] == []
    found = {
        one["location"].split("#")[0] for one in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    assert {page.as_posix() for page in wanted} <= found
    assert not [place for place in found if place.startswith("source/")], "code would hide the pages"


@pytest.mark.slow
def test_every_link_of_the_site_leads_to_a_file_and_an_anchor_of_it(site: Path) -> None:
    """Beside mkdocs' own check: it does not look into links that a hook or a theme writes."""
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html") if path.name != "404.html"}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    broken = []
    for path, text in pages.items():
        for link in re.findall(r'<[a-z][^>]*\s(?:href|src)="([^"]+)"', text):
            to, _, anchor = link.partition("#")
            if ":" in to:
                continue
            file = (path.parent / to).resolve() if to else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or (anchor and file in anchors and anchor not in anchors[file]):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken, broken[:20]


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|iframe|source)[^>]*src="(?:https?:)?//', text), path
        assert not re.search(r'<link[^>]*rel="(?:stylesheet|preconnect|preload)"[^>]*href="(?:https?:)?//', text), path
        assert 'class="mermaid"' not in text, "the theme would fetch a script for it"
    gallery = (site / "reference/gallery.html").read_text(encoding="utf-8")
    assert gallery.count('<div class="flowchart">') == len([*(ROOT / "workflows/gallery").glob("*.yaml")])


BROKEN = (
    *("how-to/gone.md", "../workflows/gone.yaml", "security.md#gone", "explanation/proof.md#nor-this"),
    "../plugins/watch/workbench_otel/README.md#gone-too",
)


@pytest.mark.long
@pytest.mark.slow
def test_broken_links_and_anchors_fail_the_build(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "docs", copy / "docs")
    for name in ("plugins", "workflows", "tests", "contrib", "core", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (copy / name).symlink_to(ROOT / name)
    with (copy / "docs/tutorial.md").open("a", encoding="utf-8") as page:
        page.writelines(f"\n[gone]({link})\n" for link in BROKEN)
    done = build(copy, tmp_path / "site")
    assert done.returncode == 1 and f"{len(BROKEN)} warnings in strict mode" in done.stdout + done.stderr
    for link in BROKEN:
        assert (link.partition("#")[2] or link) in done.stderr, done.stderr


def test_a_chart_has_its_boxes_their_contents_and_labels() -> None:
    text = (
        'flowchart TD\n  n1("example")\n  subgraph n2["choose: branch"]\n    n3["case #60;a#62;"]\n    n4["b"]\n'
        '      n3 --> n4\n  end\n  n5["last: predict"]\n  n1 -->|"question"| n2\n  n1 --> n5\n'
        '  n2 -->|"answer"| n5\n  n5 -->|"back"| n2\n'
    )
    drawn = load("flowchart").draw_flowchart(text)
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert {"example", "choose: branch", "· case &lt;a&gt;", "last: predict", "question", "answer", "back"} <= {*shown}
    assert drawn.count("<rect") == 3 and drawn.count("marker-end") == 4
    with pytest.raises(ValueError, match="not a line of a flowchart"):
        load("flowchart").draw_flowchart("flowchart TD\n  a --o b\n")


@pytest.mark.parametrize("name", ["report.png", "live.png"])
def test_pictures_are_small(name: str) -> None:
    assert 10_000 < (ROOT / "docs" / "pictures" / name).stat().st_size < 200_000


@pytest.mark.slow
def test_a_step_has_its_commands_and_output_in_its_list(site: Path) -> None:
    """Python-Markdown needs them indented further than GitHub does."""
    for path in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        inside = len(re.findall(r"^   ```\w+$", text, re.MULTILINE))
        page = (site / "how-to" / f"{path.stem}.html").read_text(encoding="utf-8")
        lists = "".join(re.findall(r"<ol>.*?</ol>", page, re.DOTALL))
        assert len(re.findall(r'<div class="[^"]*highlight', lists)) == inside, path.name
        assert "```" not in re.sub(r"<code.*?</code>", "", page, flags=re.DOTALL), path.name
