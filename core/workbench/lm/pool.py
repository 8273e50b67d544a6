"""The language models of a run, made by providers (plugins) from settings, one object for each distinct setting."""

from __future__ import annotations

import difflib
import re

from workbench.base.distribution import how_to_get
from workbench.errors import PluginError
from workbench.lm.protocol import LM
from workbench.lm.weights import enter_model
from workbench.plugins import plugins
from workbench.spec import LMSpec, home_folder


class LMPool:
    """The language models of a run, one object for each distinct setting."""

    def __init__(self) -> None:
        self._made: dict[str, LM] = {}
        self._by_object: dict[int, tuple[LMSpec, LM]] = {}

    def get(self, spec: LMSpec) -> LM:
        known = self._by_object.get(id(spec))
        if known is not None and known[0] is spec:
            return known[1]  # the usual case, without serializing the settings
        key = self.key(spec)
        if key not in self._made:
            self._made[key] = make_lm(spec)
        if len(self._by_object) < 1024:
            self._by_object[id(spec)] = (spec, self._made[key])
        return self._made[key]

    async def release(self, spec: LMSpec) -> None:
        """Close a model that is not needed for now. `get` makes it again."""
        lm = self._made.pop(self.key(spec), None)
        if lm is not None:
            self._by_object = {at: known for at, known in self._by_object.items() if known[1] is not lm}
            await lm.aclose()

    def key(self, spec: LMSpec) -> str:
        """Return a text that is equal for settings of the same model."""
        # Settings of a request make no other model: equal weights are loaded once, and calls batched together.
        return spec.model_dump_json(exclude={"temperature", "max_tokens", "thinks", "timeout", "attempts"})

    async def aclose(self) -> None:
        for lm in self._made.values():
            await lm.aclose()
        self._made.clear()
        self._by_object.clear()


def split_model(model: str) -> tuple[str, str]:
    """Return (provider prefix, rest) of `prefix/rest` or `prefix:rest`; ("*", model) if no provider has the prefix."""
    known = plugins().names("lms")
    for mark in ("/", ":"):
        prefix, found, rest = model.partition(mark)
        if found and prefix in known:
            return prefix, rest
    if "*" not in known:
        prefix, known = re.split("[/:]", model)[0], f"known prefixes: {', '.join(lm_prefixes()) or 'none'}"
        near = difflib.get_close_matches(prefix, lm_prefixes(), n=1, cutoff=0.75)
        missing = f"Did you mean {near[0]}?" if near else how_to_get("lms", prefix) or how_to_get("lms", "*")
        raise PluginError(f"no LM provider serves '{model}'; {known}. {missing}")
    return "*", model


def lm_prefixes() -> list[str]:
    """List the provider prefixes for users, without the catch-all `*` and `policy`, which training sets."""
    return [name for name in plugins().names("lms") if name not in ("*", "policy")]


def make_lm(spec: LMSpec) -> LM:
    """Make the language model for these settings. Raises PluginError, or SpecError for unsupported settings."""
    enter_model(spec, home_folder())
    prefix, rest = split_model(spec.model)
    return plugins().get("lms", prefix)(rest, spec)
