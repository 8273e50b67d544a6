"""The command line. Commands import heavy modules themselves, so that --help is instant.

Only this package knows click, exit codes and terminals. Exit codes: 0 success; 1 the run failed, or workbench itself;
2 bad input; 100 no gain shown, with --require-gain; 101 `predict` wrote all rows, some of which failed; 130
interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from workbench import __version__
from workbench.base.text import one_line
from workbench.cli.output import Styled, ask, ask_text, choose, echo_json, escaping, fail, say, say_usage_error
from workbench.cli.tree import CommandTree

__all__ = ["Styled", "ask", "ask_text", "choose", "cli", "echo_json", "fail", "main", "say"]


def _ask_plugins(tree: CommandTree) -> None:
    """Let plugins add their commands, and report plugins that were set aside because of that."""
    from workbench.plugins import plugins

    found = plugins()
    known = set(found.set_aside)
    found.call("register_commands", cli=tree)
    for name in sorted(set(found.set_aside) - known):
        say(f"Warning: plugin '{name}' was set aside: {one_line(found.set_aside[name])}", err=True)


@click.group(cls=CommandTree, ask_plugins=_ask_plugins, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="workbench")
@click.option(
    "--no-plugins",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=lambda ctx, option, value: os.environ.update(WORKBENCH_NO_PLUGINS="1") if value else None,
    help="Load only the bundled plugins.",
)
def cli() -> None:
    """Optimize LLM agent workflows: get a better workflow, a proof on sealed data, and the bill.

    Start with `workbench init`, or `workbench optimize workflows/quickstart.yaml`.
    """


def main(args: list[str] | None = None) -> None:
    """Run a command and exit; an error becomes one message and an exit code."""
    with escaping():
        _main(sys.argv[1:] if args is None else args)


def _main(args: list[str]) -> NoReturn:
    from workbench.base.distribution import find_conflicting_distributions
    from workbench.errors import Interrupted, PluginError, SpecError, StoreError, WorkbenchError

    for warning in find_conflicting_distributions():
        say(f"Warning: {warning}", err=True)
    try:
        sys.exit(_run(args))
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        say_usage_error(error)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt, Interrupted) as error:
        during = str(error) or str(error.__cause__ or "")  # click turns Ctrl-C into an Abort
        say(f"Interrupted{f': {during}' if during else ''}.", err=True)
        sys.exit(130)
    except (SpecError, PluginError, StoreError) as error:
        _echo_error(args, error)
        fail(str(error), 2)
    except WorkbenchError as error:
        _echo_error(args, error)
        fail(str(error), 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None and error.strerror:  # an error of the user's disk
            _echo_error(args, error)
            fail(f"{error.filename}: {error.strerror}", 2)
        import traceback

        say(traceback.format_exc(), err=True, nl=False, verbatim=True)  # here, since Python would print it unescaped
        sys.exit(1)


def _echo_error(args: list[str], error: Exception) -> None:
    """With --json, an error is one line of JSON on stdout, too; `validate` prints its own."""
    if "--json" in args and args[0] != "validate":
        echo_json({"ok": False, "error": {**error_as_dict(error), "kind": type(error).__name__}})


def error_as_dict(error: Exception) -> dict[str, Any]:
    """Return an error as a dict: file, line, column (from 1; None if unknown), message, hint."""
    keys = ("file", "line", "column", "message", "hint")
    return {**dict.fromkeys(keys), "message": str(error), **{k: v for k, v in vars(error).items() if k in keys}}


def _run(args: list[str]) -> int:
    """Run a command and return its exit code. A run started on several ranks goes through the plugin that shares it."""

    def command() -> int:
        code = cli.main(args, prog_name="workbench", standalone_mode=False)
        return code if isinstance(code, int) else 0

    size = int(os.environ.get("WORLD_SIZE", 1))
    if size < 2 or "RANK" not in os.environ or args[:1] not in (["optimize"], ["resume"]):
        return command()
    from workbench.errors import PluginError
    from workbench.plugins import plugins

    code = plugins().manager.hook.share_run(rank=int(os.environ["RANK"]), size=size, command=command)
    if code is None:
        raise PluginError(f"no plugin can share one run among the {size} processes started; start a single process")
    return code
