"""Checks that the language models of a file and of its nodes can be called."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from workbench.errors import PluginError, SpecError, collect_errors, errors_at, suggest
from workbench.lm import LM_KEYS, check_embeds, enter_model, lm_prefixes, make_lm, split_model
from workbench.plugins import plugins
from workbench.spec import LMSpec, defaults, home_folder, is_collecting, lm_spec
from workbench.workflow import NodeKind, Workflow


def missing_default(lm: LMSpec) -> bool:
    """Return True for the default model if no plugin serves it: only a node that calls it needs it."""
    return lm.model == defaults.LM and lm.model.partition("/")[0] not in plugins().names("lms")


def check_lms(lm: LMSpec | None, roles: Mapping[Any, LMSpec] = {}) -> None:
    """Refuse models that no provider serves, and settings that a provider does not accept. Raises SpecError."""
    for path, one in ((("lm",), lm), *((("roles", role), one) for role, one in roles.items())):
        if one is not None:
            with errors_at(*path):
                check_lm(one)


def check_node_lms(workflow: Workflow, roles: Collection[str]) -> None:
    """Check the models that nodes, and nodes inside them, name under `lm` and `embedder`, like `check_lms`.

    roles: those that the file names. A node that asks another role is refused, too.
    """

    def check(name: str, node: NodeKind) -> None:
        with errors_at("nodes", name):
            for inner in node.walk():
                _check_node_lms(inner, roles, inner is node)

    collect_errors(partial(check, name, node) for name, node in workflow.enabled_nodes.items())


def _check_node_lms(node: NodeKind, roles: Collection[str], top: bool) -> None:
    for key in LM_KEYS:
        if value := getattr(node.config, key, None):
            with errors_at(*((key,) if top else ())):
                check_lm(lm_spec(value), embeds=key == "embedder")
    for role in node.roles:
        if role not in roles:
            raise SpecError(
                f"this node asks a model of the role `{role}`, and the file names none",
                hint=f"Write e.g. roles: {{{role}: openai/gpt-4.1}}.",
            )


def check_lm(lm: LMSpec, embeds: bool = False) -> None:
    """Refuse a model that no provider serves, or settings that its provider does not accept. Raises SpecError.

    embeds: require a model that can embed texts.
    """

    enter_model(lm, home_folder())
    if is_collecting():
        return  # a provider may read weights, or load for seconds
    try:
        if split_model(lm.model)[0] != "*":
            made = make_lm(lm)
            if embeds:
                check_embeds(made, lm.model)
        elif "/" not in lm.model.strip("/"):
            raise SpecError(
                f"no LM provider serves '{lm.model}'", hint="Write provider/model. " + suggest(lm.model, lm_prefixes())
            )
        else:
            _check_provider(lm.model)
    except PluginError as error:
        raise SpecError(str(error)) from error


def _check_provider(model: str) -> None:
    """Refuse a prefix that looks like a mistyped provider, unless the provider of all other models knows it. That
    provider is asked last, since it may take seconds to load. Raises SpecError."""
    import difflib

    prefix, mine = model.partition("/")[0], lm_prefixes()
    near = difflib.get_close_matches(prefix, mine, n=1, cutoff=0.75)
    if not near:
        return
    known = getattr(plugins().get("lms", "*"), "providers", set[str])()
    if prefix not in known:
        raise SpecError(
            f"there is no LM provider '{prefix}'",
            hint=f"Did you mean '{near[0]}/{model.partition('/')[2]}'? If not, write litellm/{model}.",
        )
