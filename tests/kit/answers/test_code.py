"""The reader of code."""

from __future__ import annotations

import pytest

from workbench_kit.answers import find_code, find_keyed


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("a\n```python\nx = 1\n```\nb", ["x = 1"]),
        ("```\nx\n```\n```sql\nSELECT 1;\n```", ["x", "SELECT 1;"]),
        ("```sql\nSELECT 1", ["SELECT 1"]),  # cut
        ("Run ```SELECT 1```.", ["SELECT 1"]),
        ("~~~py\nx\n~~~", ["x"]),
        ("````md\n```\nin\n```\n````", ["```\nin\n```"]),
        ("1. So:\n   ```python\n   if x:\n       y()\n   ```", ["if x:\n    y()"]),
        ("```python\nprint('```')\n```", ["print('```')"]),
        ("`a` and ``b``", []),
        ("```\n\n```", []),
    ],
)
def test_code_is_what_fences_hold(text: str, held: list[str]) -> None:
    assert find_code(text) == held


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{\"other\": 1} then {'a': 1,}", {"a": 1}),
        ('{"result": {"a": 1}}', {"a": 1}),
        ('[{"b": 0}, {"a": 1}]', {"a": 1}),
        ('{"b": 1}', None),
        ("a", None),
    ],
)
def test_an_object_is_found_by_a_key_of_it(text: str, found: dict[str, int] | None) -> None:
    assert find_keyed(text, "a") == found
