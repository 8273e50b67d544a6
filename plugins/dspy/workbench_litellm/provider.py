"""The provider itself, without imports that take seconds."""

from __future__ import annotations

import re
from typing import Any

from workbench.base.distribution import package_folder
from workbench_litellm.installed import check_litellm, has_litellm


def anything(model: str, settings: Any) -> Any:
    """Return an LM for any model string of LiteLLM or DSPy; after `litellm/`, the rest is the model string.

    Raises SpecError if the model needs LiteLLM and it is not installed.
    """
    explicit = re.match(r"litellm[/:](.+)", settings.model)
    if explicit and not has_litellm():
        check_litellm(settings.model, "its prefix asks for LiteLLM")
    from workbench_litellm.dspy_lm import DSPyLM

    return DSPyLM(explicit[1] if explicit else settings.model, settings)


def _providers() -> set[str]:
    """Return the prefixes that LiteLLM knows, read from its source, as importing it takes seconds; else DSPy's."""
    folder = package_folder("litellm")
    if folder is not None and (file := folder / "types" / "utils.py").is_file():
        block = file.read_text(encoding="utf-8").partition("class LlmProviders(")[2]
        if found := set(re.findall(r'^    [A-Z0-9_]+ = "([^"]+)"', block.partition("\nclass ")[0], re.MULTILINE)):
            return found
    from workbench_dspy_seam.clients import native_prefixes

    return native_prefixes()


anything.providers = _providers  # type: ignore[attr-defined]  (asked where a name looks mistyped)
