"""Takes the picture of the terminal in the tutorial: what the quickstart prints, as SVG.

    python contrib/terminal.py [FILE]

Writes docs/pictures/terminal.svg. tests/docs/test_terminal.py compares its text with what the command prints.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COMMAND = "workbench optimize workflows/quickstart.yaml"
WIDTH, HEIGHT = 80, 40
#: rich names a font on the web, which pages of documentation do not load.
_WEB_FONTS = re.compile(r"\s*@font-face \{\{.*?\}\}", re.DOTALL)


def printed(folder: Path) -> str:
    """Run the command in an empty folder, on a terminal of this size and without its progress. Returns what it prints,
    with colors."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    _, command, file = COMMAND.split()
    words = [command, str(ROOT / file), "-q"]
    environment = {**os.environ, "TERM": "xterm-256color", "WORKBENCH_TRUST": str(ROOT)}
    environment.pop("NO_COLOR", None)
    run = subprocess.Popen(
        [sys.executable, "-m", "workbench", *words],
        cwd=folder,
        env=environment,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    found = b""
    try:
        while part := os.read(ours, 65536):
            found += part
    except OSError:  # the end of a terminal
        pass
    if run.wait():
        raise SystemExit(f"{COMMAND} ended with {run.returncode}:\n{found.decode()}")
    return found.decode().replace("\r\n", "\n").rstrip()


def draw(text: str) -> str:
    """Return the terminal as SVG."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text(f"$ {COMMAND}", style="bold"))
        console.print(Text.from_ansi(text), soft_wrap=True)
        return console.export_svg(
            title="workbench", unique_id="workbench", code_format=_WEB_FONTS.sub("", CONSOLE_SVG_FORMAT)
        )


def text_of(svg: str) -> str:
    """Return the lines of text in a picture."""
    lines = dict[str, str]()
    for x, y, words in re.findall(r'<text class="workbench-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)<', svg):
        column = round(float(x) / 12.2)
        lines[y] = f"{lines.get(y, ''):<{column}}{html.unescape(words)}".replace("\xa0", " ")
    return "\n".join(line.rstrip() for line in lines.values()).rstrip()


def main(picture: Path = PICTURE) -> None:
    with tempfile.TemporaryDirectory() as folder:
        picture.write_text(draw(printed(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
