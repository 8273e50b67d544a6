"""`workbench steer`: orders to a running run."""

from __future__ import annotations

from typing import Any

import click

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.cli.options import DB, JSON, open_store

_ACTIONS = ("pause", "continue", "stop", "budget", "list")


@click.command("steer")
@click.argument("run")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@DB
@JSON
def steer_command(run: str, action: str, arguments: tuple[str, ...], db: str, as_json: bool) -> None:
    """Pause, stop or raise the budget of a running optimization.

    \b
    pause, continue       start no new rows; resume
    stop                  end the search and test the best candidate so far
    budget calls=N usd=X  raise limits (calls, tokens, usd, minutes)
    list                  show all orders and their outcomes

    A pause takes effect at once, other orders after the current evaluation. Orders are part of the run: when it is
    resumed, they are replayed at the same place.
    """
    from workbench.cli.progress import order_words
    from workbench.run import give_order
    from workbench.store import Orders

    if action == "list":
        store = open_store(db)
        found = Orders(store, store.find_run(run)["id"]).read_all()
        if as_json:
            return echo_json(found)
        for order in found:
            words = (order["at"], order["kind"], *order_words(order["data"]), order["outcome"] or "pending")
            say("  ".join(one_line(word) for word in words))
        return None if found else say("No orders.")
    number = give_order(open_store(db, write=True), run, action, _data(action, arguments))
    if as_json:
        return echo_json({"order": number})
    return say(f"order {number} sent; to see its outcome: workbench steer {one_line(run)} list")


def _data(action: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """Return the data of an order. Raises click.UsageError."""
    from workbench.spec import parse_value

    pairs = [text.partition("=") for text in arguments]
    if all(equals for _, equals, _ in pairs) and bool(pairs) == (action == "budget"):
        return {key: parse_value(value) for key, _, value in pairs}
    forms = "calls=N, tokens=N, usd=X or minutes=X" if action == "budget" else "no arguments"
    raise click.UsageError(f"`{action}` takes {forms}")
