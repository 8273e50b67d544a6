from __future__ import annotations

import click


@click.command("slots")
def slots_command() -> None: ...


@click.command("apply")
def apply_command() -> None: ...


@click.command("gateway")
def gateway_command() -> None: ...
