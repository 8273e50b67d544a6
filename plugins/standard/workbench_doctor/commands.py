"""`workbench doctor`: what is wrong with the installation, where settings come from, and whether models answer."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.base.text import indented, one_line
from workbench.cli import Styled, echo_json, say
from workbench.cli.options import JSON

if TYPE_CHECKING:
    from workbench_doctor.ping import Ping


@click.command("doctor")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--ping", is_flag=True, help="Call each language model of FILE once. This may cost money.")
@JSON
def doctor_command(file: Path | None, ping: bool, as_json: bool) -> None:
    """Check the installation, and the origin of each setting of FILE.

    Exits with code 1 if a check or a call fails.
    """
    from workbench_doctor.checks import run_checks
    from workbench_doctor.origins import find_origins

    if ping and file is None:
        raise click.UsageError("--ping needs a workflow file: workbench doctor --ping FILE")
    pings = _ping(file) if ping and file else []
    found = run_checks()
    settings = find_origins(file) if file else []
    if as_json:
        about = {"checks": [asdict(c) for c in found], "settings": [asdict(s) for s in settings]}
        echo_json({**about, **({"models": [asdict(p) for p in pings]} if ping else {})})
    else:
        for check in found:
            say(_MARK[check.status](), f"  {one_line(check.name)}: {indented(check.message)}")
        for setting in settings:
            say(one_line(f"{setting.address} = {setting.value}   ({setting.origin})"))
        _say_pings(pings)
    if (not as_json and any(c.status == "fail" for c in found)) or any(p.failure for p in pings):
        sys.exit(1)


_MARK = {
    "ok": lambda: Styled("ok  ", "green"),
    "warn": lambda: Styled("warn", "yellow"),
    "fail": lambda: Styled("FAIL", "red"),
}


def _ping(file: Path) -> list[Ping]:
    from workbench.cli.trust import require_trust
    from workbench_doctor.ping import ping_models

    return ping_models(require_trust(file, called=True))


def _say_pings(pings: list[Ping]) -> None:
    """Print a line for each model, and the cost of all calls."""
    for ping in pings:
        head = one_line(f"  {ping.model} ({', '.join(ping.uses)}): ")
        if ping.failure:
            say(_MARK["fail"](), head, f"{one_line(ping.failure)}: {indented((ping.message or '')[:500])}")
            continue
        price = "price unknown" if ping.usd is None else f"${ping.usd:.6f}"
        tokens = f"{ping.prompt_tokens} tokens in, {ping.completion_tokens} out"
        answer = one_line(ping.answer[:60])
        say(_MARK["ok"](), head, f"prompt of {len(ping.prompt)} characters, {ping.seconds:.2f} s, {tokens}, {price}")
        say(f"      answer: {answer}")
    if pings:
        known = sum(ping.usd or 0 for ping in pings)
        unknown = sum(ping.usd is None and not ping.failure for ping in pings)
        say(
            f"{len(pings)} calls for ${known:.6f}"
            + (f", {unknown} of unknown price" if unknown else "")
            + "; in no budget"
        )
