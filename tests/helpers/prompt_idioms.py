"""Small programs that keep a prompt in one ordinary way each (existing-agents.md finding 9), and what they send."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.prompt_sources import KIND, OLD, ROOM

LETTER = "A bill of the month"
ASKED = "Sort this letter: {letter}. Name its kind."
PLAIN = " Be brief and kind to whoever writes to us."
SEVERAL = '\n\n## Rules\n- Don\'t guess.\n- Answer as {"label": "a"}.'
HOSTILE = "\n{} ${x} $y %s 100% {% raw %} \\n \\ \"\"\" ''' \t tab 😀 {{y}} {z} it's `w` <b> & #c"
LISTED = "\n- Don't guess.\n  - Be brief.\n- Say why."
HEADED = "\n\n## Rules\n* Be *kind*."
SPACED = " So:  \r\n\t- a tab\there\n\n\n  and `marks` \\."


class Idiom(NamedTuple):
    """Files of a program. code: Python that sets `sent`; "": the program is a shell's or a makefile, which prints it.
    refused: what is not written of the plain, the several and the hostile text, as a part of the reason."""

    files: dict[str, str]
    code: str = ""
    refused: tuple[str, str, str] = ("", "", "")


def read(name: str, how: str, text: str, *refused: str) -> Idiom:
    """A file `name` with a text, which a program reads in a way: an expression of the text `t`."""
    return Idiom({name: text}, f"t = (here / {name!r}).read_text()\nsent = {how}\n", refused or ("", "", ""))  # type: ignore[arg-type]


def python(source: str, *refused: str) -> Idiom:
    return Idiom({"agent.py": source}, "", refused or ("", "", ""))  # type: ignore[arg-type]


def shell(source: str, files: dict[str, str] | None = None, *refused: str) -> Idiom:
    source = f'#!/bin/bash\nLETTER="{LETTER}"\n{source}'
    return Idiom({"agent.sh": source, **(files or {})}, "", refused or ("", "", ""))  # type: ignore[arg-type]


def make(source: str, *refused: str) -> Idiom:
    return Idiom({"Makefile": source}, "", refused or ("", "", ""))  # type: ignore[arg-type]


def message(kind: str, text: str) -> str:
    found = f"re.search(r'{{% {kind} role=.system. %}}(.*?){{% end{kind} %}}', {text}, re.S)[1]"
    return f"jinja2.Template({found}).render().strip()"


def element(text: str) -> str:
    return f"html.unescape(re.search(r'<message role=.system.>(.*?)</message>', {text}, re.S)[1].strip())"


XML = "ET.fromstring(t).find('sort').text"
SPLIT = "dict(zip((p := re.split(r'^# (\\w+)\\n', t, flags=re.M))[1::2], p[2::2]))['System'].strip()"
PROMPTY = "re.split(r'^(system|user):\\n', t, flags=re.M)[2].strip()"
CELLS = "{r['name']: r['text'] for r in csv.DictReader(io.StringIO(t, newline=''))}['sort']"
WORDS = "dict(w.split('=', 1) for w in shlex.split(t))['SORT']"
COMMENT = "'## Rules' would be a comment there"
JOINED = "the program joins its lines to one"
ONE_LINE = "one line"
_USER = '{% message role="user" %}\nGo on.\n{% endmessage %}\n'
HAYSTACK = f'{{% message role="system" %}}\n{OLD}\n{{% endmessage %}}\n{_USER}'
KERNEL = f'<message role="system">{OLD}</message>\n<message role="user">Go on.</message>\n'


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


IDIOMS = {
    "% of a name": python(f'P = "{ASKED}"\nsent = P % letter\n'.replace("{letter}", "%s")),
    "% of a name with a dict": python(f'P = "{ASKED}"\nsent = P % {{"l": letter}}\n'.replace("{letter}", "%(l)s")),
    "replaced {letter}": python(f'P = "{ASKED}"\nsent = P.replace("{{letter}}", letter)\n'),
    "replaced {{letter}}": python(
        f'P = "{ASKED}"\nsent = P.replace("{{{{letter}}}}", letter)\n'.replace("{letter}.", "{{letter}}.")
    ),
    "replaced ${LETTER}": python(
        f'P = "{ASKED}"\nsent = P.replace("${{LETTER}}", letter)\n'.replace("{letter}", "${LETTER}")
    ),
    "replaced [letter]": python(
        f'P = "{ASKED}"\nsent = P.replace("[letter]", letter).replace("\\n\\n", "\\n\\n")\n'.replace(
            "{letter}", "[letter]"
        )
    ),
    "replaced by a pattern": python(
        f'P = "{ASKED}"\nsent = re.sub(r"\\[letter\\]", letter, P)\n'.replace("{letter}", "[letter]")
    ),
    "expandvars": python(
        f'os.environ["LETTER"] = letter\nsent = os.path.expandvars("{ASKED}")\n'.replace("{letter}.", "${LETTER}.")
    ),
    "joined words": python(f'sent = " ".join("""\n    {ROOM}\n    {KIND}\n""".split())\n', "", JOINED, JOINED),
    "capitals": python(f'sent = "{ROOM}".upper()\n', *["its form there differs"] * 3),
    "JSON in a literal": python(f'P = \'{{"n": 1, "sort": "{ROOM}"}}\'\nsent = json.loads(P)[\'sort\']\n'),
    "JSON in a here-document": shell(
        f"python3 -c \"import json, sys; print(json.load(sys.stdin)['s'], end='')\" <<E\n"
        f'{{"s": "{ROOM} It: $LETTER.", "n": "x"}}\nE\n'
    ),
    "docstring": python(
        f'import inspect\ndef f():\n    """{ROOM}\n\n    {KIND}\n    """\nsent = inspect.getdoc(f)\n', "", "", "tabs"
    ),
    "lines by themselves": python(
        f'P = """\n    {ROOM}\n    {KIND}\n"""\nsent = "\\n".join(l.strip() for l in P.splitlines() if l.strip())\n',
        "",
        "empty lines",
        "",
    ),
    "comments": Idiom(
        {
            "agent.py": 't = (here / "p.txt").read_text()\n'
            'sent = "".join(l for l in t.splitlines(True) if not l.startswith("#"))\n',
            "p.txt": f"{OLD}\n",
        },
        "",
        ("", "#", ""),
    ),
    "f-string of lines": python(f'def f():\n    return f"""Sort {{letter}} now.\n{OLD}\n"""\nsent = f()\n'),
    "sum of a value": python('sent = ("Sort this letter: " + letter\n    + ". Name its kind.")\n'),
    "sum in brackets": python('sent = ("Sort " + ("this " + letter) + " now") + (". Name" " its kind.")\n'),
    "literals that meet": python(f'sent = (\n    "{ROOM} "  # why\n    f"Of {{letter}}. "\n    "{KIND}"\n)\n'),
    "list of lines": python(
        f'P = [\n    "{ROOM}",  # why\n    f"It: {{letter}}",\n    "{KIND}",\n]\nsent = "\\n".join(P)\n'
    ),
    "notebook": read(
        "a.ipynb",
        "(exec(''.join(json.loads(t)['cells'][0]['source']), p := {}), p['P'])[1]",
        json.dumps({"cells": [{"cell_type": "code", "source": [f'P = "{ROOM}"\n', "y = 1"]}], "nbformat": 4}, indent=1),
    ),
    "no suffix": read("SYSTEM", "t", OLD + "\n"),
    "no suffix, format": read("SYSTEM", "t.format(letter=letter)", ASKED + "\n"),
    "XML element": read("p.xml", XML, f'<p>\n <!-- "why" -->\n <sort>{ROOM}</sort>\n <x a="b">c &amp; d</x>\n</p>\n'),
    "XML of lines": read("p.xml", f"{XML}.strip()", f"<p><sort>\n{OLD}\n</sort></p>\n"),
    "XML CDATA": read("p.xml", XML, f"<p><sort><![CDATA[{OLD}]]></sort></p>\n"),
    "XML attribute": read("p.xml", "ET.fromstring(t).find('sort').get('t')", f"<p><sort t='{ROOM}'/></p>\n"),
    "CSV": read("p.csv", CELLS, f'name,text\nsort,{ROOM}\nother,"Some, ""other"""\n'),
    "CSV in quotes": read("p.csv", CELLS, f'name,text\nsort,"{OLD}"\n'),
    "TSV": read("p.tsv", "t.split('\\n')[1].split('\\t')[1]", f"name\ttext\nsort\t{ROOM}\n", "", ONE_LINE, ONE_LINE),
    "JSON rows": read(
        "p.jsonl",
        "{r['name']: r['text'] for r in map(json.loads, t.splitlines())}['sort']",
        f'{{"name": "sort", "text": "{ROOM}"}}\n{{"name": "x", "text": "Other."}}\n',
    ),
    "pyproject": read(
        "pyproject.toml",
        "tomllib.loads(t)['tool']['sorter']['prompt']",
        f'[project]\nname = "sorter"\n\n[tool.sorter]\nprompt = "{ROOM}"\n',
    ),
    ".env in double quotes": read(".env", WORDS, f'KEY=secret\nSORT="{ROOM}"\n'),
    ".env in single quotes": read(".env", WORDS, f"KEY=secret\nexport SORT='{ROOM}'\n".replace("export ", "")),
    ".env bare": read(
        ".env",
        "dict(r.split('=', 1) for r in t.splitlines() if '=' in r)['SORT']",
        f"KEY=secret\nSORT={ROOM}\n",
        "",
        ONE_LINE,
        ONE_LINE,
    ),
    ".env of a shell": Idiom({"agent.sh": '. ./.env\nprintf %s "$SORT"\n', ".env": f'KEY=secret\nSORT="{ROOM}"\n'}),
    ".env of a shell in single quotes": Idiom(
        {"agent.sh": '. ./.env\nprintf %s "$SORT"\n', ".env": f"KEY=secret\nSORT='{ROOM}'\n"}
    ),
    "INI": read("p.ini", "ini(t)['p']['sort']", f"[p]\nsort =\n  {ROOM}\n\n  {KIND}\nn = 1\n", "", COMMENT, ""),
    "INI of Unix": read("p.conf", "ini(t)['p']['sort']", f"[p]\nsort = {ROOM}\nn = 1\n", "", COMMENT, ""),
    "Markdown section": read("p.md", SPLIT, f"# System\n\n{OLD}\n\n# Other\n\nMore of it.\n"),
    "Prompty": read("p.prompty", PROMPTY, f"---\nname: p\n---\nsystem:\n{OLD}\n\nuser:\nGo on.\n"),
    "Haystack in YAML": read(
        "p.yaml", message("message", "yaml.safe_load(t)['t']"), f"t: |\n{indented(HAYSTACK)}n: 1\n"
    ),
    "Haystack in JSON": read("p.json", message("message", "json.loads(t)['t']"), json.dumps({"t": HAYSTACK})),
    "Haystack in a file": read("p.txt", message("message", "t"), HAYSTACK),
    "LlamaIndex in Python": python(f't = """{HAYSTACK.replace("message", "chat")}"""\nsent = {message("chat", "t")}\n'),
    "Semantic Kernel in YAML": read("p.yaml", element("yaml.safe_load(t)['t']"), f"t: |\n{indented(KERNEL)}n: 1\n"),
    "Semantic Kernel in a file": read("p.txt", element("t"), KERNEL),
    "here-document": shell(f"# don't\nPROMPT=$(cat <<'EOF'\n{OLD}\nEOF\n)\nprintf %s \"$PROMPT\"\n"),
    "here-document with fields": shell(f'printf %s "$(cat <<EOF\n{ROOM}\nOf $LETTER.\nEOF\n)"\n'),
    "here-document without tabs": shell(f"if true; then\n\tcat <<-'EOF'\n\t{ROOM}\n\t{KIND}\n\tEOF\nfi\n"),
    "read -d": shell(f"read -r -d '' PROMPT <<'END'\n{OLD}\nEND\nprintf %s \"$PROMPT\"\n"),
    "single quotes": shell(f"PROMPT='{OLD}'\nprintf %s \"$PROMPT\"\n"),
    "strict mode": shell(f"set -euo pipefail\nIFS=$'\\n\\t'\nPROMPT='{OLD}'\nprintf %s \"$PROMPT\"\n"),
    "an apostrophe": shell("printf %s 'You sort the post; don'\\''t be slow at it.'\n"),
    "double quotes": shell('printf %s "Sort this letter: ${LETTER}. Name its \\"kind\\"."\n'),
    "a word of a command": shell(f"ask() {{ printf %s \"$2\"; }}\nask --system '{ROOM}' # it's\n"),
    "case": shell(
        'while [ $# -gt 0 ]; do\n  case "$1" in  # it\'s\n    -h | --help) echo case; exit ;;\n'
        "    ([a-z]*) case $2 in 'x y') echo 'No (';; esac\n    ;;\n    *) cat <<E ;;\nesac )\nE\n  esac\n"
        f"shift\ndone\nP=$(case x in x) printf '%s' '{OLD}';; esac)\n"
        'if case x in *) true; esac then printf %s "$P"; fi\n'
    ),
    "default of a variable": shell(f'P="${{X:-{ROOM} Of \\"$LETTER\\" {{\\}}.}}"\nprintf %s "$P"\n'),
    "default in quotes of its own": shell(f': ${{P:="{ROOM} }}"}}\nprintf %s "$P"\n'),
    "escapes of bash": shell(f"P=$'{ROOM}\\n{KIND}'\nprintf %s \"$P\"\n"),
    "evaluated": shell('eval "cat <<E\n$(cat p.txt)\nE"\n', {"p.txt": OLD}),
    "evaluated in quotes": shell('eval "printf %s \\"$(cat p.txt)\\""\n', {"p.txt": f"{OLD}\nIt: ${{LETTER}}."}),
    "run by another shell": shell(f"P='{ROOM}'\nsh -c \"printf %s '$P'\"\n", {}, "", *["a shell may"] * 2),
    "printf of a text": shell('printf "$(cat p.txt)"\n', {"p.txt": OLD}),
    "echo -e": shell(f"P='{ROOM}\\n{KIND}'\necho -e \"$P\"\n"),
    "without quotes": shell(f"P='{ROOM}'\necho -n $P\n", {}, "", "joined", "joined"),
    "read by line": shell('while read l; do echo "$l"; done <p.txt | head -c -1\n', {"p.txt": OLD + "\n"}),
    "make variable": make(f'export P := {ROOM}\nall:\n\t@printf %s "$$P"\n', "", ONE_LINE, ONE_LINE),
    "make definition": make(f'define P\n{OLD}\nendef\nexport P\nall:\n\t@printf %s "$$P"\n'),
    "make variable in double quotes": make(f'P = {ROOM}\nall:\n\t@printf %s "$(P)"\n', "", ONE_LINE, ONE_LINE),
    "make variable in single quotes": make(f"P = {ROOM}\nall:\n\t@printf %s '${{P}}'\n", "", ONE_LINE, ONE_LINE),
    "make variable in two quotes": make(
        f"P = {ROOM}\nall:\n\t@sh -c 'printf %s \"$(P)\"'\n", "", "a shell would", "a shell would"
    ),
    "make variable without quotes": make(
        f"P = {ROOM}\nall:\n\t@echo $(P) | tr -d '\\n'\n", "", "a shell would", "a shell would"
    ),
    "make definition in quotes": make(
        f'define P\n{ROOM}\nendef\nall:\n\t@printf %s "$(P)"\n', "", "a shell would", "a shell would"
    ),
    "make that includes .env": Idiom(
        {"Makefile": 'include .env\nexport\nall:\n\t@printf %s "$$P"\n', ".env": f"P={ROOM}\n"},
        "",
        ("", ONE_LINE, ONE_LINE),
    ),
    "make command": make(f"all:\n\t@printf %s '{ROOM}'\n", "", ONE_LINE, ONE_LINE),
}
HEAD = """
import configparser, csv, html, io, jinja2, json, os, re, shlex, tomllib, yaml
import xml.etree.ElementTree as ET
def ini(text):
    found = configparser.ConfigParser()
    found.read_string(text)
    return found
"""


def sent_by(idiom: Idiom, folder: Path) -> str:
    """What the program in a folder sends. Raises what it raises."""
    if "agent.sh" in idiom.files or "Makefile" in idiom.files:
        command = ["bash", "agent.sh"] if "agent.sh" in idiom.files else ["make", "-s"]
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
        return told.stdout.decode()
    code = idiom.code or (folder / "agent.py").read_text()
    space: dict[str, Any] = {"letter": LETTER, "here": folder}
    exec(HEAD + code, space)
    return space["sent"]
