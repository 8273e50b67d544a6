"""Tools for astar.yaml: desks that take a ticket in. Each gives its name, which is the answer."""

from __future__ import annotations


def billing(text: str) -> str:
    """Charges, invoices and refunds."""
    return "billing"


def technical(text: str) -> str:
    """What does not work."""
    return "technical"


def shipping(text: str) -> str:
    """Parcels under way."""
    return "shipping"


def returns(text: str) -> str:
    """What is sent back."""
    return "returns"


def account(text: str) -> str:
    """Names, addresses, passwords."""
    return "account"
