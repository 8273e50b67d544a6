"""Forms of their own, which the product speaks through `litellm/`."""

from __future__ import annotations

from tests.dialects.dialect import Dialect

DIALECTS: list[Dialect] = []
