"""`workbench steer`: orders to a running run."""

from __future__ import annotations

from typing import Any

import click

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.cli.options import DB, JSON, open_store

_ACTIONS = ("pause", "continue", "stop", "budget", "pin", "drop", "add", "list")


@click.command("steer")
@click.argument("run")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("arguments", nargs=-1, metavar="[CANDIDATE] [KEY=VALUE]...")
@DB
@JSON
def steer_command(run: str, action: str, arguments: tuple[str, ...], db: str, as_json: bool) -> None:
    """Pause, stop or change a running optimization.

    \b
    pause, continue             start no new rows; resume
    stop                        end the search and test the best candidate so far
    budget calls=N usd=X        raise limits (calls, tokens, usd, minutes)
    pin CANDIDATE               keep it as the best, whatever is found later
    drop CANDIDATE              exclude it from selection
    add CANDIDATE ADDRESS=VALUE evaluate a variant of a candidate
    list                        show all orders and their outcomes

    A pause takes effect at once, other orders after the current evaluation. Orders are part of the run: when it is
    resumed, they are replayed at the same place.
    """
    from workbench.cli.progress import order_words
    from workbench.steering import give_order
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
    """The data of an order. Raises click.UsageError."""
    pairs = dict(_pair(text) for text in arguments if "=" in text)
    names = [text for text in arguments if "=" not in text]
    match action:
        case "budget" if pairs and not names:
            return pairs
        case "pin" | "drop" if len(names) == 1 and not pairs:
            return {"candidate": names[0]}
        case "add" if len(names) == 1 and pairs:
            return {"parent": names[0], "set": pairs}
        case "pause" | "continue" | "stop" if not arguments:
            return {}
        case _:
            forms = {
                "budget": "calls=N, tokens=N, usd=X or minutes=X",
                "pin": "one candidate hash from `workbench show`",
                "drop": "one candidate hash from `workbench show`",
                "add": "a candidate and settings, e.g. c0ffee nodes.answer.instructions='Think first.'",
            }
            raise click.UsageError(f"`{action}` takes {forms.get(action, 'no arguments')}")


def _pair(text: str) -> tuple[str, Any]:
    from workbench.spec import parse_value

    key, _, value = text.partition("=")
    return key, parse_value(value)
