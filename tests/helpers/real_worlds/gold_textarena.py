"""Tic-tac-toe: the first player wins by her right moves, and loses by no move at all."""

import json

GAME = {"task": {"seed": 1}, "gold": ["[4]", "[0]", "[2]", "[1]", "[6]"], "none": ["pass"] * 9}
print(json.dumps([GAME]))
