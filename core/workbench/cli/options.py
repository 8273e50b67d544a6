"""The options that several commands share, each with one name and one help text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import click

#: The key in a context's `meta` of the ExitStack of what the command opened.
OPENED = "workbench.opened"
FILE = click.argument("file", type=click.Path(path_type=Path))
DB = click.option("--db", default="workbench.db", envvar="WORKBENCH_DB", show_default=True, help="Run database.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
SET = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="ADDRESS=VALUE",
    help="Override a setting of the file, e.g. nodes.answer.samples=3. Repeatable.",
)
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace an existing output file.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="Show no progress and no warnings.")
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
CACHE = click.option(
    "--cache", is_flag=True, help="Reuse answers of earlier runs in the run database, like `cache: true` in the file."
)

_SANDBOX = (
    click.option(
        "--sandbox",
        metavar="NAME",
        envvar="WORKBENCH_SANDBOX",
        help="Sandbox for model-written code, of `workbench plugin sandbox list`. [default: the strongest available]",
    ),
    click.option(
        "--unsafe-sandbox",
        is_flag=True,
        help="Allow a sandbox that only limits resources.",
    ),
)
BUDGET_USD = click.option("--budget-usd", type=click.FloatRange(min=0, min_open=True), help="Maximum cost in dollars.")


def budget_calls_option(default: int | None = None) -> Any:
    """Return the option `--budget-calls`, with a default or without."""
    return click.option(
        "--budget-calls",
        type=click.IntRange(min=1),
        default=default,
        show_default=default is not None,
        help="Maximum number of LM calls, retries included.",
    )


_BUDGET = (
    budget_calls_option(),
    click.option("--budget-tokens", type=click.IntRange(min=1), help="Maximum number of tokens, input and output."),
    BUDGET_USD,
    click.option("--budget-minutes", type=click.FloatRange(min=0, min_open=True), help="Maximum time in minutes."),
)
EXECUTOR = click.option("--executor", metavar="NAME", help="Where rows run, e.g. ray. [default: as in the file]")
ADDRESS = click.option("--address", help="Address of the cluster for --executor, e.g. auto.")


def limit_option(text: str) -> Any:
    """Return the option `-n/--limit`, the maximum number of items to take."""
    return click.option("-n", "--limit", type=click.IntRange(min=1), help=text)


def seed_option(default: int | None = None) -> Any:
    """Return the option `--seed`, with a default or without."""
    return click.option("--seed", type=int, default=default, show_default=default is not None, help="Random seed.")


SEED = seed_option()


def add_options(options: tuple[Any, ...], command: Any) -> Any:
    """Add options to a command, in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def open_store(db: str, *, write: bool = False) -> Any:
    """Open the run database of `--db` until the command ends."""
    from workbench.store import ReadOnlyStore, Store

    opened: ExitStack = click.get_current_context().meta[OPENED]
    return opened.enter_context(Store(db, create=False) if write else ReadOnlyStore(db))


def with_sandbox(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the sandbox options. The command receives them as `sandbox`, a SandboxChoice."""

    @wraps(command)
    def wrapped(*, sandbox: str | None, unsafe_sandbox: bool, **arguments: Any) -> Any:
        from workbench.runtime import SandboxChoice

        choice = SandboxChoice(sandbox, unsafe_sandbox)
        choice.candidates()  # refuse an unknown name before the file is read
        return command(sandbox=choice, **arguments)

    return add_options(_SANDBOX, wrapped)


def with_budget(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of budget and executor. The command receives them, --set, --seed and --cache as `settings`, a
    list of (address, value)."""

    @wraps(command)
    def wrapped(
        *,
        budget_calls: int | None,
        budget_tokens: int | None,
        budget_usd: float | None,
        budget_minutes: float | None,
        sets: tuple[str, ...] = (),
        seed: int | None = None,
        cache: bool = False,
        executor: str | None,
        address: str | None,
        **arguments: Any,
    ) -> Any:
        budgets = {"calls": budget_calls, "tokens": budget_tokens, "usd": budget_usd, "minutes": budget_minutes}
        settings = [*read_executor(executor, address), *read_settings(sets, seed, cache, **budgets)]
        return command(settings=settings, **arguments)

    return add_options((*_BUDGET, EXECUTOR, ADDRESS), wrapped)


def read_executor(name: str | None, address: str | None) -> list[tuple[str, Any]]:
    """Return --executor and --address as (address, value). Raises click.UsageError for an address alone."""
    if address is not None and name is None:
        raise click.UsageError("--address needs --executor: say what runs there, e.g. --executor ray")
    found = [("executor", name)] if name is not None else []
    return found + ([(f"executor.{name}.address", address)] if address is not None else [])


def read_settings(
    sets: tuple[str, ...], seed: int | None = None, cache: bool = False, **budgets: Any
) -> list[tuple[str, Any]]:
    """Return all options as (address, value), in order of precedence: the last wins. Raises click.BadParameter."""
    from workbench.spec import parse_value

    pairs = (split_pair(text, "ADDRESS=VALUE", "--set") for text in sets)
    found: list[tuple[str, Any]] = [(address, parse_value(value)) for address, value in pairs]
    found += [("seed", seed)] if seed is not None else []
    found += [("cache", True)] if cache else []
    return found + [(f"budget.{k}", v) for k, v in budgets.items() if v is not None]


def split_pair(text: str, form: str, option: str) -> tuple[str, str]:
    """Split NAME=VALUE. Raises click.BadParameter, which names the option and its form."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.BadParameter(f"'{text}' must have the form {form}", param_hint=option)
    return name.strip(), value
