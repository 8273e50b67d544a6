"""Fixtures of the tests of environments."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "coin.py").write_text(
        "import random\nfrom workbench_kit.acting import Environment, Step\nclass Coin(Environment):\n"
        "    'Not deterministic.'\n    def reset(self, task):\n        return 'go'\n    def step(self, action):\n"
        "        if action == 'break':\n            raise RuntimeError('it broke')\n"
        "        return Step(str(random.SystemRandom().random()))\n"
        "    def score(self):\n        return 0.5\n"
        "    def snapshot(self):\n        return None\n"
    )
    return tmp_path
