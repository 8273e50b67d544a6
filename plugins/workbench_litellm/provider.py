"""The provider itself, without what takes seconds to import."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def anything(model: str, settings: Any) -> Any:
    """Any model string of LiteLLM or DSPy; after `litellm/`, what follows is the model string."""
    from workbench_litellm.dspy_lm import DSPyLM

    explicit = re.match(r"litellm[/:](.+)", settings.model)
    return DSPyLM(explicit[1] if explicit else settings.model, settings)


def _providers() -> set[str]:
    """The prefixes that LiteLLM knows, read from its source: to import it takes seconds."""
    spec = find_spec("litellm")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / "types" / "utils.py"
        block = file.read_text(encoding="utf-8").partition("class LlmProviders(")[2] if file.is_file() else ""
        if found := set(re.findall(r'^    [A-Z0-9_]+ = "([^"]+)"', block.partition("\nclass ")[0], re.MULTILINE)):
            return found
    import litellm

    return {str(getattr(name, "value", name)) for name in litellm.provider_list}


anything.providers = _providers  # type: ignore[attr-defined]  (asked where a name looks mistyped)
