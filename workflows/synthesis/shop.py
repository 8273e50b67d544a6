"""The tools of a shop, whose calls are made for real where rows are synthesized."""

from __future__ import annotations

from typing import Any


def find_order(name: str) -> dict[str, Any]:
    """The order of a person."""
    if name == "nobody":
        raise ValueError("no such person")
    return {"order": {"id": len(name), "open": True}, "items": [{"sku": name.upper()}]}


def cancel(order_id: int, reason: str) -> str:
    """Cancel an order."""
    if order_id > 90:
        raise ValueError("too late")
    return f"cancelled {order_id}"


def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"
