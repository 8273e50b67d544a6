"""Tools of the gallery: addition, and a small shell over files that are in memory alone."""

from __future__ import annotations

FILES = {
    "fruit.txt": ["apple", "pear", "plum", "apple", "fig"],
    "towns.txt": ["Ulm", "Bonn", "Kiel"],
    "notes.txt": ["buy pear", "call Ann", "sell fig"],
}


def add(numbers: list[int]) -> int:
    """Adds numbers."""
    return sum(int(n) for n in numbers)


def shell(command: str) -> str:
    """Runs one command: ls, cat FILE, wc FILE, grep WORD FILE, sort FILE. `submit` runs nothing."""
    name, *rest = command.split()
    if name.lower() == "submit":
        return "submitted"
    if name == "ls":
        return " ".join(sorted(FILES))
    if name not in ("cat", "wc", "grep", "sort"):
        raise ValueError(f"{name}: command not found")
    if len(rest) != (2 if name == "grep" else 1):
        raise ValueError(f"{name}: wrong number of arguments")
    if rest[-1] not in FILES:
        raise ValueError(f"{name}: {rest[-1]}: No such file")
    lines = FILES[rest[-1]]
    if name == "wc":
        return str(len(lines))
    if name == "grep":
        return "\n".join(line for line in lines if rest[0] in line) or "(nothing)"
    return "\n".join(sorted(lines) if name == "sort" else lines)


def quote(numbers: list[int]) -> str:
    """Says what something costs."""
    return f"quote of {sum(int(n) for n in numbers)}"


def reserve(quote: str) -> str:
    """Reserves what was quoted."""
    return quote.replace("quote of", "reserved at")


def pay(reservation: str = "") -> str:
    """Pays for what is reserved, or for nothing."""
    price = reservation.removeprefix("reserved at ")
    return f"paid {price}" if price.isdigit() else "paid 0"


def cancel(reservation: str) -> str:
    """Cancels what was reserved."""
    return "cancelled"


FRUITS = ["lemon", "banana", "apple", "kiwi", "fig", "pear", "date", "mango", "cherry", "plum"]


def price(fruit: str) -> int:
    """Says what a fruit costs, from 1 to 10."""
    return FRUITS.index(fruit) + 1
