"""All output of the command line. Text passes through `visible`, so that rows, models, servers and databases cannot
control the terminal, and through `wrap`. Colors are passed separately, never in the text."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

import click

from workbench.base.text import visible
from workbench.cli.options import QUIET, add_options

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Output:
    """The amount of progress output of a command.

    quiet: nothing. verbose: also each call. log_file: receives every line with its time, and each call.
    """

    quiet: bool = False
    verbose: bool = False
    log_file: Path | None = None


_OUTPUT = (
    QUIET,
    click.option("-v", "--verbose", is_flag=True, help="Also show every call."),
    click.option(
        "--log-file", type=click.Path(path_type=Path, dir_okay=False), help="Write progress and every call to a file."
    ),
)


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of `Output`. The command receives it as `output`."""

    @wraps(command)
    def wrapped(*, quiet: bool, verbose: bool, log_file: Path | None, **arguments: Any) -> Any:
        return command(output=Output(quiet, verbose, log_file), **arguments)

    return add_options(_OUTPUT, wrapped)


@dataclass(frozen=True)
class Styled:
    """A part of a line with its own color."""

    text: str
    fg: str | None = None
    bold: bool = False


def say(
    *parts: str | Styled,
    err: bool = False,
    nl: bool = True,
    fg: str | None = None,
    bold: bool = False,
    above: Console | None = None,
    verbatim: bool = False,
) -> None:
    """Print text on stdout. Newlines and tabs are kept. Pass external text through `one_line` if a newline in it could
    forge a line. On a terminal, lines are wrapped at its width; elsewhere they stay whole, for `grep`.

    Args:
        parts: the text, in parts that are joined without spaces.
        err: print on stderr.
        nl: end with a newline.
        fg, bold: default color and weight of the parts; ignored if the output is not a terminal.
        above: a rich console; the text is printed above its live line.
        verbatim: never wrap: the text is the content of a file.
    """
    styled = [part if isinstance(part, Styled) else Styled(part, fg, bold) for part in parts or ("",)]
    if above is not None:
        from rich.text import Text

        text = wrap("".join(visible(part.text) for part in styled), above.width)
        above.print(Text(text), soft_wrap=True)
        return
    shown = [
        click.style(visible(part.text), fg=part.fg, bold=part.bold or None)
        if part.fg or part.bold
        else visible(part.text)
        for part in styled
    ]
    with suppress(BrokenPipeError) if err else nullcontext():  # a closed pipe must not end a run that is paid for
        file = sys.stderr if err else _own_stdout()
        text = wrap("".join(shown), 0 if verbatim else _width(file))
        click.echo(text, file=file, nl=nl, color=False if os.environ.get("NO_COLOR") else None)


#: What stays on one line: a command after a colon, which is there to be pasted; code in backticks; words.
_WHOLE = re.compile(r"(\s*)((?<=: )workbench .*?(?=[,;.]?\s*$|[,;.]\s|\s\()|[^\s`]*`[^`]*`\S*|\S+)")


def wrap(text: str, width: int) -> str:
    """Wrap the lines of a text between words, and indent what follows by four spaces more. width: 0 for no limit."""
    return "\n".join(_wrap_line(line, width) for line in text.split("\n")) if width else text


def _wrap_line(line: str, width: int) -> str:
    out, column, indent = "", 0, len(line) - len(line.lstrip(" ")) + 4
    for gap, word in _WHOLE.findall(line):
        if column and column + len(gap) + _cells(word) > width:
            gap, column = "\n" + " " * indent, 0
        out += gap + word
        column += (indent if "\n" in gap else len(gap)) + _cells(word)
    return out + line[len(line.rstrip()) :]


def _cells(word: str) -> int:
    """Return the columns that a word takes on a terminal: colors take none, and wide characters two."""
    if word.isascii() and "\x1b" not in word:
        return len(word)
    from rich.cells import cell_len

    return cell_len(_KEPT.sub("", word))


def _width(file: Any) -> int:
    """Return the columns of a terminal; 0 for a file or a pipe."""
    return shutil.get_terminal_size().columns if file.isatty() else 0


def echo_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON on stdout, on one line unless indented. Everything but ASCII letters and signs is escaped.
    NaN and the infinities, which JSON does not have, become null."""
    try:
        text = json.dumps(value, default=str, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), default=str, indent=indent)
    click.echo(text, file=_own_stdout())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _wrapped(question: str) -> str:
    return wrap(visible(question), _width(sys.stderr))


def ask(question: str) -> bool:
    """Ask a yes-or-no question at the terminal. An empty answer means no."""
    return click.confirm(_wrapped(question), err=True)


def choose(question: str, answers: Sequence[str], default: str) -> str:
    """Ask for one of several answers at the terminal, until one is given."""
    return click.prompt(_wrapped(question), type=click.Choice(answers), default=default, err=True)


def ask_text(question: str) -> str:
    """Ask at the terminal for a line of text, which may be empty."""
    return click.prompt(_wrapped(question), default="", show_default=False, err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print an error on stderr and exit with a code."""
    say(Styled("Error: ", "red", bold=True), message, err=True)
    sys.exit(code)


def say_usage_error(error: click.ClickException) -> None:
    """Print an error of click: the usage of the command, and the error in its arguments."""
    if isinstance(error, click.NoSuchOption) and error.possibilities:  # click compares the dashes, too
        bare = {name.lstrip("-"): name for name in error.possibilities}
        near = [bare[name] for name in get_close_matches(error.option_name.lstrip("-"), bare)]
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    text = io.StringIO()
    text.isatty = lambda: True  # otherwise click drops colors, and also an escape sequence in the error
    error.show(text)
    say(text.getvalue(), err=True, nl=False)


class _Escaping:
    """A stream that escapes text written without `say`: by tools, hooks, warnings, logs and tracebacks. Colors, and the
    carriage return of progress bars, are kept."""

    def __init__(self, stream: Any):
        self.stream = stream

    def write(self, text: str) -> int:
        kept = _KEPT.split(text) if "\x1b" in text or "\r" in text else [text]
        self.stream.write("".join(part if n % 2 else visible(part) for n, part in enumerate(kept)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _UsersStdout:
    """Replaces stdout while a command runs: output of user code goes to stderr, and only `say` and `echo_json` write to
    stdout. Its `buffer` and file descriptor are those of stdout, for protocols that use them."""

    def __init__(self, own: Any):
        self.own = own

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        sys.stderr.writelines(lines)

    def flush(self) -> None:
        sys.stderr.flush()
        self.own.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def _own_stdout() -> Any:
    return sys.stdout.own if isinstance(sys.stdout, _UsersStdout) else sys.stdout


@contextmanager
def prints_on_stderr() -> Generator[None]:
    """Send output of user code in the block to stderr, from every thread, so that stdout has only ours."""
    before = sys.stdout
    sys.stdout = before if isinstance(before, _UsersStdout) else cast(TextIO, _UsersStdout(before))
    try:
        yield
    finally:
        sys.stdout = before


_KEPT = re.compile("(\x1b\\[[0-9;]{0,20}m|\r)")


@contextmanager
def escaping() -> Generator[None]:
    """Escape all text that Python writes to stdout and stderr in the block."""
    before = sys.stdout, sys.stderr
    with _own_descriptor(sys.stdout) as stdout:
        sys.stdout, sys.stderr = (cast(TextIO, _Escaping(stream)) for stream in (stdout, before[1]))
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


@contextmanager
def _own_descriptor(stdout: TextIO) -> Generator[TextIO]:
    """Yield stdout at a descriptor that nobody else writes to: output of libraries and child processes to descriptor 1
    goes to stderr. Yields the stream itself if it is not descriptor 1, as in tests."""
    try:
        moved = os.dup(1) if stdout.fileno() == 1 else -1
    except (OSError, ValueError):  # closed, or not a file
        moved = -1
    if moved < 0:
        yield stdout
        return
    with open(
        moved, "w", encoding=stdout.encoding, errors=stdout.errors, buffering=1 if stdout.isatty() else -1
    ) as own:
        with suppress(OSError):  # stderr is closed
            os.dup2(2, 1)
        try:
            yield own
        finally:
            try:
                own.flush()
                os.dup2(own.fileno(), 1)
            except BrokenPipeError:  # nobody reads any more, so drop the rest
                os.dup2(os.open(os.devnull, os.O_WRONLY), own.fileno())


def bare_stderr() -> TextIO:
    """Return the stream under `escaping`, for a live line that moves the cursor."""
    stream: Any = sys.stderr
    while isinstance(stream, _Escaping):
        stream = stream.stream
    return stream
