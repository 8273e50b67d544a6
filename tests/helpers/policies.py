"""Rules of `policy:` that several tests share."""

from __future__ import annotations

from typing import Any

from workbench.spec import PolicySpec


def policy(text: dict[str, Any]) -> PolicySpec:
    return PolicySpec.model_validate(text)


LIMITED = {
    "default": "deny",
    "rules": [
        {"deny": "send_*", "when": {"to": {"one_of": ["mallory"]}}, "why": "not to mallory"},
        {"allow": "send_*", "when": {"amount": {"max": 100}, "to": {"matches": "[a-z]+"}}},
        {"ask": "send_*", "when": {"amount": {"max": 1000}}},
        {"allow": "read", "when": {"file.path": "/tmp/a"}},
    ],
}
