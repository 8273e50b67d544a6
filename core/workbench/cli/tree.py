"""The commands under their headings, including those of plugins. Modules are imported on demand."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import click

from workbench.cli.options import OPENED
from workbench.cli.output import prints_on_stderr

#: The headings of `workbench --help`, each with our commands in the order of a first session, and their modules.
HEADINGS: dict[str, dict[str, str]] = {
    "Begin": {
        "init": "project_commands",
        "validate": "check_commands",
        "estimate": "run_commands",
        "trust": "trust",
        "data": "project_commands",
        "plugin": "project_commands",
    },
    "Measure": {"run": "run_commands", "eval": "eval_commands", "compare": "eval_commands"},
    "Improve": {
        "optimize": "run_commands",
        "resume": "run_commands",
        "steer": "runs.steering",
        "branch": "runs.branching",
        "agent": "project_commands",
    },
    "Look": {"runs": "runs", "show": "inspect_commands", "diff": "inspect_commands"},
    "Use": {"predict": "predict_commands", "export": "inspect_commands"},
}
MODULES = {name: module for commands in HEADINGS.values() for name, module in commands.items()}
GROUPS = ("data", "plugin", "agent", "runs")
#: The heading for commands of plugins that name none.
OTHERS = "Plugins"


class CommandGroup(click.Group):
    """A group of commands, with those of plugins after its own. more: loads them, and returns them by name."""

    more: Callable[[], Mapping[str, click.Command]] = dict

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of their definition."""
        return [*self.commands, *self.more()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. Plugins are loaded only if the command is not ours."""
        return self.commands.get(cmd_name) or self.more().get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that arguments begin with. Raises click.UsageError, with a suggestion."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command and _printing_apart(command), rest
        except click.UsageError as error:
            raise click.UsageError(f"{error.message} {self.suggestion(ctx, args[0])}", ctx) from None

    def suggestion(self, ctx: click.Context, name: str) -> str:
        """Return what to write in place of a command that does not exist."""
        from workbench.base.distribution import how_to_get
        from workbench.errors import suggest

        path = " ".join([*ctx.command_path.split()[1:], name])
        return how_to_get("commands", path) or suggest(name, self.list_commands(ctx))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings, the summaries in one column and never cut off."""
        sections = self.sections(ctx)
        wide = max((len(name) for names in sections.values() for name in names), default=0)
        for heading, names in sections.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(f"{n:<{wide}}", c.get_short_help_str(500)) for n, c in found if c is not None])

    def sections(self, ctx: click.Context) -> dict[str, list[str]]:
        """Return the names of the commands by heading."""
        return {"Commands": self.list_commands(ctx)}


def _printing_apart(command: click.Command) -> click.Command:
    """Make the command run with `prints_on_stderr`, after its help, and close what it opened. A group is left alone."""
    if isinstance(command, click.Group) or "invoke" in vars(command):
        return command
    invoke = command.invoke

    def apart(ctx: click.Context) -> Any:
        # Not by `ctx.with_resource`: Click keeps a context on its stack if closing raises, as a store does.
        with prints_on_stderr(), ExitStack() as ctx.meta[OPENED]:
            return invoke(ctx)

    command.invoke = apart
    return command


class CommandTree(CommandGroup):
    """The group `workbench`. ask_plugins: calls the plugins' hook `register_commands` with this group."""

    def __init__(self, *args: Any, ask_plugins: Callable[[CommandTree], None], **settings: Any):
        super().__init__(*args, **settings)
        self.ask_plugins = ask_plugins
        #: Commands of plugins, by their heading or group; None before plugins were asked.
        self.placed: dict[str, dict[str, click.Command]] | None = None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the headings."""
        return [name for names in self.sections(ctx).values() for name in names]

    def suggestion(self, ctx: click.Context, name: str) -> str:
        """Return the group that has the command, or else similar names."""
        for place in GROUPS:
            group = self.get_command(ctx, place)
            if isinstance(group, click.Group) and group.get_command(ctx, name):
                return f"Did you mean '{place} {name}'?"
        return super().suggestion(ctx, name)

    def sections(self, ctx: click.Context) -> dict[str, list[str]]:
        """Return the names of the commands by heading, without groups and headings that hold none."""
        found = {h: [*HEADINGS.get(h, ()), *self._placed(h)] for h in (*HEADINGS, OTHERS)}
        empty = {name for name in GROUPS if not self._is_filled(ctx, name)}
        return {h: [name for name in names if name not in empty] for h, names in found.items() if names}

    def _is_filled(self, ctx: click.Context, name: str) -> bool:
        group = self.get_command(ctx, name)
        return isinstance(group, click.Group) and bool(group.list_commands(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, with its module imported."""
        if cmd_name not in MODULES:
            return next((c for h in (*HEADINGS, OTHERS) if (c := self._placed(h).get(cmd_name))), None)
        command = getattr(importlib.import_module(f"workbench.cli.{MODULES[cmd_name]}"), f"{cmd_name}_command")
        if isinstance(command, CommandGroup):
            command.more = partial(self._placed, cmd_name)
        return command

    def add_command(self, cmd: click.Command, name: str | None = None, *, under: str = OTHERS) -> None:
        """Add a command of a plugin.

        Args:
            cmd: the command, or a group of commands.
            name: its name, by default the one that it has.
            under: a heading of `workbench --help`, such as "Look", or a command group, such as "agent".

        Raises:
            ValueError: the name is taken, or there is no such heading or group.
        """
        places = (*HEADINGS, OTHERS, *GROUPS)
        if under not in places:
            raise ValueError(f"there is no heading or command group '{under}'; there are: {', '.join(places)}")
        name, context = name or cmd.name or "", click.Context(self)
        group = self.get_command(context, under) if under in GROUPS else self
        if isinstance(group, click.Group) and group.get_command(context, name):
            raise ValueError(f"the command '{name}' exists already; choose another name")
        self._placed(under)[name] = cmd

    def _placed(self, place: str) -> dict[str, click.Command]:
        """Return the commands of plugins under a heading or group. The first call asks the plugins."""
        if self.placed is None:
            self.placed = {}
            with prints_on_stderr():  # for output during their import
                self.ask_plugins(self)
        return self.placed.setdefault(place, {})
