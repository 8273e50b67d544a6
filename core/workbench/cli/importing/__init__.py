"""The group `workbench import`, which plugins add commands to: `import traces FILE`."""

from __future__ import annotations

from typing import Any

import click


class ImportGroup(click.Group):
    """A first argument that names no command is a path: `import PATH` is short for `import path PATH`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "path" in self.commands and args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["path", *args]
        return super().parse_args(ctx, args)


def import_group(cli: Any) -> click.Group:
    """The group in the click group `cli`; the first plugin that asks makes it."""
    found = cli.commands.get("import")
    if found is None:
        found = ImportGroup("import", help="Make rows or a workflow of what another tool wrote.")
        cli.add_command(found)
    return found
