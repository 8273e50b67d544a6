"""Language models made from their settings, by the plugins that provide them: one object for each distinct setting."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from workbench.errors import PluginError
from workbench.lm import LM
from workbench.plugins import plugins
from workbench.spec import LMSpec, named_lm
from workbench.workflow import Workflow, canonical


class LMPool:
    """The language models of a run, one object for each distinct setting."""

    def __init__(self) -> None:
        self._made: dict[str, LM] = {}
        self._by_object: dict[int, tuple[LMSpec, LM]] = {}

    def get(self, spec: LMSpec) -> LM:
        known = self._by_object.get(id(spec))
        if known is not None and known[0] is spec:
            return known[1]  # the usual case, without writing the settings out
        key = self._key(spec)
        if key not in self._made:
            self._made[key] = make_lm(spec)
        if len(self._by_object) < 1024:
            self._by_object[id(spec)] = (spec, self._made[key])
        return self._made[key]

    async def release(self, spec: LMSpec) -> None:
        """Close a model that is not needed for a while; it is made anew when it is."""
        lm = self._made.pop(self._key(spec), None)
        if lm is not None:
            self._by_object = {at: known for at, known in self._by_object.items() if known[1] is not lm}
            await lm.aclose()

    def _key(self, spec: LMSpec) -> str:
        # What the request carries does not make another model: equal weights are loaded once, and batched together.
        return spec.model_dump_json(exclude={"temperature", "max_tokens", "timeout", "attempts"})

    async def aclose(self) -> None:
        for lm in self._made.values():
            await lm.aclose()
        self._made.clear()
        self._by_object.clear()


def split_model(model: str) -> tuple[str, str]:
    """(prefix of a provider, rest) of `prefix/rest` or `prefix:rest`; ("*", model) if no provider has the prefix."""
    known = plugins().names("lms")
    for mark in ("/", ":"):
        prefix, found, rest = model.partition(mark)
        if found and prefix in known:
            return prefix, rest
    if "*" not in known:
        raise PluginError(f"no LM provider serves '{model}'; known prefixes: {', '.join(lm_prefixes())}")
    return "*", model


def lm_prefixes() -> list[str]:
    """The prefixes of providers that people write; not that of who serves all the others, nor those that an optimizer sets
    while it trains."""
    return [name for name in plugins().names("lms") if name not in ("*", "policy")]


def make_lm(spec: LMSpec) -> LM:
    """The language model for these settings. Raises PluginError, or SpecError for settings it does not take."""
    prefix, rest = split_model(spec.model)
    return plugins().get("lms", prefix)(rest, spec)


def lm_spec(value: Any) -> LMSpec:
    """A name or a mapping of settings as an LMSpec; equal settings give one object."""
    return _lm_spec(canonical(named_lm(value)))


def task_lm(lm: LMSpec, workflow: Workflow) -> LMSpec:
    """The file's language model, with what patches of the workflow's `lm` changed of it.

    Another model keeps the server and the settings only where the same provider serves it, and never the price.
    """
    changed = workflow.tree.get("lm")
    if not changed:
        return lm
    changed = named_lm(changed)
    model = changed.get("model", lm.model)
    if _provider(model) != _provider(lm.model):
        return lm_spec(changed)
    kept = lm.model_dump(exclude_unset=True, mode="json", exclude={"price"} if model != lm.model else None)
    return lm_spec({**kept, **changed})


def _provider(model: str) -> str:
    return re.split("[/:]", model, maxsplit=1)[0]


@lru_cache(maxsize=256)
def _lm_spec(text: str) -> LMSpec:
    return LMSpec.model_validate_json(text)
