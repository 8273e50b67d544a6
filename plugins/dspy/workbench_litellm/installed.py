"""Detection of LiteLLM, which is needed only for models that DSPy's own client does not serve."""

from __future__ import annotations

from workbench.base.distribution import package_folder, pip_install
from workbench.errors import SpecError


def has_litellm() -> bool:
    """Return True if LiteLLM is installed; it is not imported."""
    return package_folder("litellm") is not None


def check_litellm(model: str, why: str) -> None:
    """Raise SpecError for a model that only LiteLLM serves, when LiteLLM is not installed."""
    hint = (
        f"Install it: {pip_install('dspy[litellm]')}. Without it: anthropic/..., gemini/..., openrouter/... and others."
    )
    raise SpecError(f"{model} needs LiteLLM, which is not installed ({why})", hint=hint, path=("model",))
