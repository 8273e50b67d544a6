"""The record that the workflow writes, and how it is scored."""


def build(queue: str, urgency: str) -> dict:
    """A record of its fields."""
    return {"queue": queue, "urgency": urgency}


def shared_fields(example, prediction):
    """The share of the row's fields that the prediction has right, and which it has not."""
    wanted, given = example["ticket"], prediction["ticket"] or {}
    wrong = [
        f"{name}: expected {value}, got {given.get(name)}" for name, value in wanted.items() if given.get(name) != value
    ]
    return 1 - len(wrong) / len(wanted), "; ".join(wrong) or None
