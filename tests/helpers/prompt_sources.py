"""Files that hold a prompt, in each ordinary way, and how a program reads it (existing-agents.md finding 4: its 36
ways, and siblings)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from workbench_external.apply import Finding, find_text, write_edits
from workbench_external.config import Slot

ROOM, KIND = "You sort the post of an office.", "Name the kind."
OLD = f"{ROOM}\n{KIND}"
#: What a model writes: quotes of all kinds, letters, JSON, marks of templates, a backslash, several lines.
NEW = 'It\'s "new", `now`: sort for ü \\ 日本.\n\n  As {"label": "a"} or ${x}, 100% #{y} {{z}} {% raw %}.'


class Way(NamedTuple):
    """A file that holds a prompt. how: of the ways in which it may be written, the number of the right one."""

    file: str
    source: str
    match: str
    new: str = NEW
    how: int = 0


def js(expression: str) -> str:
    return f"export const prompt = {expression};\n"


def notebook(*lines: str) -> str:
    cells = [{"cell_type": "markdown", "source": ["# Post\n"]}, {"cell_type": "code", "source": [*lines]}]
    return json.dumps({"cells": cells, "nbformat": 4}, indent=1, ensure_ascii=False)


FIELD = 'Kind of {{text}}?\nAs {"a": {"b": 1}}, it\'s `{{text}}`.'
PYTHON = {
    "double quotes": Way("a.py", f"prompt = {json.dumps(OLD)}\n", OLD),
    "single quotes": Way("a.py", f"prompt = '{ROOM}'\n", ROOM),
    "three quotes": Way("a.py", f'prompt = """{OLD}"""\n', OLD),
    "raw string": Way("a.py", f"prompt = r'''{OLD}'''\n", OLD),
    "literals that meet": Way("a.py", f"x = 'é'; prompt = ('{ROOM}\\n'\n   '{KIND}')\n", OLD),
    "continued line": Way("a.py", f'prompt = "{ROOM}\\n\\\n{KIND}"\n', OLD),
    "f-string": Way("a.py", "prompt = f'Sort this: {text!s:>3}. Kind?'\n", "Sort this: {{text}}. Kind?", FIELD),
    "f-string with quotes": Way("a.py", "prompt = f\"Sort: {row['text']}. Kind?\"\n", "Sort: {{text}}. Kind?", FIELD),
    "f-string with braces": Way("a.py", 'prompt = f"Sort {text} as {{a}}"\n', "Sort {{text}} as {a}", FIELD),
    "str.format": Way("a.py", "prompt = 'Sort {text} as {{a}}'.format(text=text)\n", "Sort {{text}} as {a}", FIELD),
    "str.format by place": Way(
        "a.py", "prompt = 'Sort this: {}'.format(text)\n", "Sort this: {{text}}", "As {a}: {{text}}"
    ),
    "percent": Way("a.py", "prompt = 'Sort %s, 100%% sure' % text\n", "Sort {{text}}, 100% sure", "50%: {{text}}\n{a}"),
    "percent by name": Way("a.py", "prompt = 'Sort %(t)s now' % {'t': text}\n", "Sort {{text}} now", FIELD),
    "sum": Way("a.py", "prompt = 'Sort this: ' + row['text'] + '. Kind?'\n", "Sort this: {{text}}. Kind?", FIELD),
    "sum of constants": Way("a.py", f"prompt = '{ROOM}\\n' + (\n  '{KIND}')\n", OLD),
    "f-string of constants": Way("a.py", f"prompt = f'{ROOM}' f'\\n{KIND}'\n", OLD),
    "joined list": Way("a.py", f'prompt = "\\n".join([\n    "{ROOM}",\n    "{KIND}",\n])\n', OLD),
    "joined with fields": Way(
        "a.py", 'prompt = "\\n".join(("Sort:", f"> {text}", "Kind?"))\n', "Sort:\n> {{text}}\nKind?", FIELD
    ),
    "lines joined elsewhere": Way(
        "a.py",
        'lines = ["Sort:", f"> {text}", "Kind?"]\nprompt = "\\n".join(lines)\n',
        "Sort:\n> {{text}}\nKind?",
        FIELD,
    ),
    "lines that become one": Way("a.py", f'prompt = str.join("\\n", ["{ROOM}", "{KIND}"])\n', OLD, 'Say "a" or {b}.'),
    "dedent": Way(
        "a.py",
        f'import textwrap\nprompt = textwrap.dedent("""\n        {ROOM}\n        {KIND}\n    """).strip()\n',
        OLD,
    ),
    "cleandoc": Way("a.py", f'import inspect\nprompt = inspect.cleandoc("""{ROOM}\n    {KIND}\n    """)\n', OLD),
    "Jinja in Python": Way(
        "a.py",
        "import jinja2\nprompt = jinja2.Template('Sort {{ text }} now.').render(text=text)\n",
        "Sort {{text}} now.",
        "{{text}}? {% raw %} {# {a}",
    ),
    "dollar": Way(
        "a.py",
        "import string\nprompt = string.Template('Sort $text now').substitute(text=text)\n",
        "Sort {{text}} now",
        "5 $ for {{text}} {a}",
    ),
    **{
        f"replaced {mark}": Way(
            "a.py", f"prompt = 'Sort {mark} now'.replace('{mark}', text)\n", "Sort {{text}} now", FIELD
        )
        for mark in ("[[TEXT]]", "@text@", "%%TEXT%%", "#text#", "${text}")
    },
    "Windows": Way("a.py", f'x = 1\r\nprompt = """{ROOM}\r\n{KIND}"""\r\n', OLD),
    "byte order mark": Way("a.py", f'\ufeffprompt = "{ROOM}"\n', ROOM),
}
SCRIPT = {
    "single quotes": Way("a.js", js(f"'{ROOM}'"), ROOM),
    "double quotes": Way("a.ts", js(f'"{ROOM} Für alle."'), f"{ROOM} Für alle."),
    "escapes": Way("a.js", js(r"'Sort f\u00fcr \u{1F600} \x41\'s.'"), "Sort für 😀 A's."),
    "template": Way("a.js", js(f"`{OLD}`"), OLD),
    "template with field": Way(
        "a.mjs", "const text='T';\n" + js("`Sort ${ text.trim() } now`"), "Sort {{text}} now", FIELD
    ),
    "field with template": Way(
        "a.js", "const text='T';\n" + js("`Sort ${text ? `${text}` : '}'} now`"), "Sort {{text}} now", FIELD
    ),
    "sum": Way("a.js", js(f'"{ROOM}\\n" +\n  "{KIND}"'), OLD),
    "sum with fields": Way(
        "a.js", "const row={text: 'T'};\n" + js("'Sort ' + row.text.slice(0, 9) + ' now'"), "Sort {{text}} now", FIELD
    ),
    "joined list": Way("a.tsx", js(f'[\n  "{ROOM}",\n  `{KIND}`,\n].join("\\n")'), OLD),
    "lines joined elsewhere": Way("a.js", f'const lines = ["{ROOM}", "{KIND}"];\n' + js('lines.join("\\n")'), OLD),
    "lines that become one": Way(
        "a.js", f'const lines = ["{ROOM}", "{KIND}"];\n' + js('lines.join("\\n")'), OLD, "Say `a` or ${b}."
    ),
    "joined list with a long line": Way(
        "a.js",
        js(f'["{ROOM}", "", "{KIND}"].join("\\n")'),
        f"{ROOM}\n\n{KIND}",
        f"{ROOM * 9}\n\n{KIND}\n{KIND * 9}",
    ),
    "joined list of sums": Way(
        "a.js",
        "const text='T';\n" + js(f'[\n  "{ROOM}" +\n    " It: " + text,\n  text + "."\n].join("\\n")'),
        f"{ROOM} It: {{{{text}}}}\n{{{{text}}}}.",
        FIELD,
    ),
    "after a pattern": Way("a.js", "const p = /[\"'`]/.test('`') ? 1 : 4 / 2; // it's\n" + js(f"'{ROOM}'"), ROOM),
    "after a pattern behind a condition": Way(
        "a.js", "if ('x') /[\"'`]/.test('`');\nconst n = (4) / 2 / 1;\n" + js(f"'{ROOM}'"), ROOM
    ),
    "Windows": Way("a.js", js(f"`{ROOM}\r\n{KIND}`"), OLD),
    "begins with a field": Way(
        "a.js", "const text='T';\n" + js("`${text} is which kind?`"), "{{text}} is which kind?", FIELD
    ),
    "trimmed": Way("a.js", js(f"`\n{OLD}\n`.trim()"), OLD),
    "concatenated": Way("a.js", js(f"'{ROOM}'.concat('')"), ROOM),
    "String.raw": Way("a.js", js("String.raw`Sort C:\\new.`"), "Sort C:\\new."),
    "replaced marks": Way(
        "a.js",
        "const text='T';\n" + js("'Sort ${text} now'.replaceAll('${text}', text)"),
        "Sort {{text}} now",
        FIELD,
    ),
    "replaced by a pattern": Way(
        "a.js",
        "const text='T';\n" + js("'Sort <the letter> now'.replace(/<the letter>/g, text)"),
        "Sort {{text}} now",
        FIELD,
    ),
    "in an object": Way("a.js", js(f'({{role: "system", content: "{ROOM}"}}).content'), ROOM),
}
DATA = {
    "JSON": Way("a.json", json.dumps({"prompt": f"{ROOM} Für alle."}, ensure_ascii=False), f"{ROOM} Für alle."),
    "JSON with escapes": Way("a.json", json.dumps({"prompt": f"{ROOM} Für alle."}), f"{ROOM} Für alle."),
    "JSON lines": Way("a.json", json.dumps({"prompt": [ROOM, KIND], "next": 1}, indent=2), OLD),
    "JSON lines that become one": Way("a.json", json.dumps({"prompt": [ROOM, KIND], "next": 1}), OLD, "Say a."),
    "YAML plain": Way("a.yaml", f"prompt: {ROOM}\nnext: 1\n", ROOM),
    "YAML over lines": Way("a.yml", "prompt: You sort the post\n  of an office.\nnext: 1\n", ROOM),
    "YAML in quotes": Way("a.yaml", f"prompt: '{ROOM}' # why\nnext: 1\n", ROOM),
    "YAML block": Way("a.yaml", f"prompt: |\n    {ROOM}\n    {KIND}\nnext: 1\n", OLD),
    "YAML folded": Way("a.yaml", "prompt: >-\n  You sort the post\n  of an office.\nnext: 1\n", ROOM),
    "YAML flow": Way("a.yaml", f"{{prompt: '{ROOM}', next: 1}}\n", ROOM),
    "YAML anchor": Way("a.yaml", f"one: &p |-\n  {ROOM}\n  {KIND}\nprompt: *p\n", OLD),
    "TOML": Way("a.toml", f'x = 1\nprompt = """\n{OLD}"""\ny = "z"\n', OLD),
    "TOML of one line": Way("a.toml", f"prompt = '{ROOM}' # why\n", ROOM),
    "JSON5": Way("a.json5", f"{{prompt: '{ROOM} It\\'s \"so\".', next: 1}}", f'{ROOM} It\'s "so".'),
    "notebook": Way(
        "a.ipynb", notebook("%pip install x\n", f"prompt = ('{ROOM}\\n'\n", f"  '{KIND}')\n", "y = 'ü'"), OLD
    ),
}
PROSE = {
    "text": Way("p.txt", f"{OLD}\n", OLD),
    "Markdown of Windows": Way("p.md", f"{ROOM}\r\n{KIND}\r\n", OLD),
    **{name: Way(name, f"{OLD}\n", OLD) for name in ("p.tmpl", "p.tpl", "p.md.template")},
    "section": Way("p.md", f"# System\n\n{OLD}\n\n# User\n\nGo.\n", OLD, "It's new.\nNow."),
    "roles": Way("p.prompty", f"---\nname: p\n---\nsystem:\n{OLD}\n\nuser:\nGo.\n", OLD, "It's new.\nNow."),
    "between marks of Jinja": Way(
        "p.j2", f"{{# why #}}\n{OLD}\n  {{%- if x -%}} {{# a #}}\nBe kind.\n{{% endif %}}\n", OLD, "It's new.\nNow."
    ),
    "byte order mark": Way("p.txt", f"\ufeff{OLD}\n", OLD),
    "byte order mark, no suffix": Way("SYSTEM", f"\ufeff{OLD}\n", OLD),
    "byte order mark that is sent": Way("p.md", f"\ufeff{OLD}\n", f"\ufeff{OLD}", f"\ufeff{ROOM}"),
    "section behind a byte order mark": Way("p.md", f"\ufeff# A\n{OLD}\n# B\nGo.\n", OLD, "It's new.\nNow."),
    "in a fence": Way("p.md", f"# A\n\n```\n{OLD}\n```\n\n# B\n\nGo.\n", OLD, "# Sort\n\nIt's new.\n## Now."),
    "a fence in a section": Way("p.md", f"# A\n\n{OLD}\n\n# B\n\nGo.\n", OLD, "So:\n```sh\n# Sort\n```\nNow."),
    "behind a fence that nothing closes": Way("p.md", f"```\n# A\n\n{OLD}\n\n# B\n\nGo.\n", OLD, "It's new.\nNow."),
    "below a head": Way("p.prompt", f"---\nmodel: m\n---\n{OLD}\n", OLD, "It's new.\nNow."),
}
TEMPLATES = {
    "text with a field": Way("p.txt", "Sort {text}.\nKind?\n", "Sort {{text}}.\nKind?", FIELD),
    "Jinja": Way("p.j2", "Sort {{ text }}.\nKind?\n", "Sort {{text}}.\nKind?", "{{text}}? {% raw %} {a} {{b}}"),
}


def finding_of(way: Way, folder: Path) -> Finding:
    (folder / way.file).write_bytes(way.source.encode())
    slot = Slot.model_validate({"in": "system", "match": way.match, "text": way.new})
    return find_text(slot, [folder])


def changed(way: Way, folder: Path) -> list[str]:
    """The file in all ways in which it may be written."""
    finding = finding_of(way, folder)
    assert finding.edits, finding.why
    return [write_edits([edit])[folder / way.file] for edit in finding.edits]


def wanted(way: Way, text: str = "T") -> str:
    """The new text as an agent sends it; what looks like a hole of another name is text."""
    return way.new.replace("{{text}}", text) if "{{text}}" in way.match else way.new


def python_value(source: str) -> str:
    space: dict[str, Any] = {"text": "T", "row": {"text": "T"}}
    exec(compile(source.removeprefix("\ufeff"), "a.py", "exec"), space)
    return space["prompt"]


def data_value(file: str, source: str) -> str:
    if file.endswith(".json"):
        prompt = json.loads(source)["prompt"]
        return prompt if isinstance(prompt, str) else "\n".join(prompt)
    if file.endswith(".json5"):
        return json.JSONDecoder().raw_decode(source, source.index('"'))[0]
    if file.endswith(".toml"):
        return tomllib.loads(source)["prompt"]
    if file.endswith(".ipynb"):
        lines = json.loads(source)["cells"][1]["source"]
        return python_value("".join(line for line in lines if not line.startswith("%")))
    return yaml.safe_load(source)["prompt"]
