"""The tools of the agent: functions with types and a docstring, which the model is shown."""

TEAMS = {
    "billing": "invoice payment receipt discount fee",
    "shipping": "parcel delivery courier package address",
    "technical": "screen battery app camera keyboard",
    "returns": "refund exchange warranty voucher repair",
}


def find_team(word: str) -> str:
    """The team that looks after a thing, e.g. parcel."""
    return next((team for team, words in TEAMS.items() if word.lower() in words.split()), "unknown")
