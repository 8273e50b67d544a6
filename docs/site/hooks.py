"""What mkdocs is told beyond docs/: pages that stand elsewhere in the repository, links to them, and the navigation.

A page of docs/ links to files by their place in the repository, so that GitHub can follow it. The same file has a place
on the site: what is below docs/ its own, README.md of a plugin `plugins/NAME.md`, and what else a page links to
`source/PATH.md`, which shows its text. Nothing is copied into docs/.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(HERE)]

from flowchart import draw_flowchart  # noqa: E402
from writers.contents import contents  # noqa: E402

#: Code, or a link: which of the two a bracket belongs to is decided by what begins first.
_CODE_OR_LINK = re.compile(
    r"(?P<code>^ *```.*?^ *```$|`(?:[^`\n]|\n(?!\s*\n))+`)|"
    r"(?P<text>!?\[[^\]]*\]\()(?P<target>[^)#\s]+)(?P<rest>(?:#[^)]*)?\))",
    re.MULTILINE | re.DOTALL,
)
_CHART = re.compile(r"^```mermaid\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
_PART = 40_000  # characters of a file that are shown
#: Pages of the repository that are pages of the site without being source.
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "source/README.md"}

_origin: dict[str, str] = {}  # place on the site -> place in the repository


def place(path: str) -> str:
    """Where a file of the repository stands on the site."""
    parts = PurePosixPath(path).parts
    if path in PAGES:
        return PAGES[path]
    if parts[0] == "docs":
        return posixpath.join(*parts[1:])
    if parts[0] == "plugins" and parts[3:] == ("README.md",):
        return f"plugins/{parts[2]}.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def on_config(config: Any) -> Any:
    nav: list[Any] = [{"Start": "index.md"}]
    for group, links in contents().items():
        nav.append({group: [{title[0].upper() + title[1:]: place(path)} for title, path in links]})
    nav.append({"Project": [{"Changelog": "changelog.md"}, {"Contributing": "contributing.md"}]})
    config.nav = nav
    return config


def on_files(files: Any, config: Any) -> Any:
    style = File.generated(config, "site.css", content=(HERE / "site.css").read_text(encoding="utf-8"))
    files.append(style)
    known = {f"docs/{file.src_uri}" for file in files.documentation_pages()}
    todo = sorted({*known, *PAGES, *(path for links in contents().values() for _, path in links)})
    seen = set(todo)
    while todo:
        path = todo.pop()
        _origin[place(path)] = path
        if path not in known:
            files.append(File.generated(config, place(path), content=_page(path)))
        if not path.endswith(".md"):
            continue
        for target in _targets(path):
            if target not in seen and (ROOT / target).exists() and files.get_file_from_path(place(target)) is None:
                if not (target.startswith("docs/") and not target.endswith(".md")):
                    seen.add(target)
                    todo.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    here = page.file.src_uri
    origin = _origin.get(here)
    if origin is not None and origin.endswith(".md"):

        def mend(match: re.Match[str]) -> str:
            code, text, target, rest = match.groups()
            return _unescape(code) if code else text + _led(target, origin, here) + rest

        markdown = _CODE_OR_LINK.sub(mend, markdown)
    if here.startswith("source/"):
        page.meta["search"] = {"exclude": True}
    return _CHART.sub(lambda m: draw_flowchart(m[1]), _deeper(markdown))


def _deeper(markdown: str) -> str:
    """Indent the content of a step of a numbered list by four characters, not three, as Python-Markdown needs it."""
    lines, step, code = list[str](), False, False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            code = not code
        elif not code and line[:1].strip():
            step = re.match(r"\d+\. ", line) is not None
        lines.append(f" {line}" if step and line.startswith("   ") else line)
    return "\n".join(lines)


def _led(target: str, origin: str, here: str) -> str:
    """A link of a file of the repository as a link of its page; one that leads nowhere stays, and the build fails."""
    if "://" in target or target.startswith("mailto:"):
        return target
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if not (ROOT / path).exists():
        return target
    return posixpath.relpath(place(path), posixpath.dirname(here) or ".")


def _unescape(code: str) -> str:
    """In a table GitHub needs `a\\|b` for a bar in code; Python-Markdown would show the backslash."""
    return code if "\n" in code else code.replace("\\|", "|")


def _targets(path: str) -> set[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    found = (m["target"] for m in _CODE_OR_LINK.finditer(text) if m["target"] and "://" not in m["target"])
    return {posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) for target in found}


def _page(path: str) -> str:
    """A file of the repository as Markdown: pages as they are, all else as text, folders as lists."""
    file = ROOT / path
    if file.is_dir():
        return f"# {path}\n\n" + "\n".join(f"- `{p.name}`" for p in sorted(file.iterdir()) if p.name[0] not in "._")
    text = file.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    fence = "`" * 6
    more = "" if len(text) <= _PART else f"\n\nThe first {_PART:,} of {len(text):,} characters."
    return f"# {path}\n\n{fence}{_LANGUAGES.get(file.suffix, 'text')}\n{text[:_PART]}\n{fence}{more}\n"
