"""The weights, servers and variables that a model's settings name.

Weights are `extra: {path: FOLDER}`, or a folder as the model's name, as in `hf:./FOLDER`.

In a workflow file, such a folder is relative to the file, so that both can be moved together. If there is no such
folder next to the file, the name does not change: providers then resolve it relative to the current folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench.base.type_guards import is_dict, walk
from workbench.lm.protocol import is_loopback
from workbench.spec import (
    VARIABLE,
    LMSpec,
    Spec,
    connect,
    describe_host,
    existing,
    is_open,
    pass_door,
    read_outside,
    send_variables,
)

#: Settings of a node that name a language model.
LM_KEYS = ("lm", "embedder")
_SERVER = re.compile(r"https?://\S+", re.IGNORECASE)
_FOLDER = re.compile(r"(\w+:)((?:\.{1,2}|[/~]|.*/\.\./).*)", re.DOTALL)


def weights_folder(lm: Any) -> str | None:
    """Return the folder that a model's settings name, as written; None if they name none."""
    settings = lm if is_dict(lm) else {"model": lm}
    extra = settings.get("extra")
    if is_dict(extra) and isinstance(extra.get("path"), str):
        return extra["path"]
    named = _FOLDER.fullmatch(str(settings.get("model") or ""))
    return named[2] if named else None


def enter_model(lm: Any, base: Path, *at: str | int) -> tuple[set[str], set[str]]:
    """Pass the doors of a model's settings, as written or as LMSpec: its weights, and variables for its server.

    Returns the variables, and the hosts of servers elsewhere.
    """
    if is_open() or lm is None:
        return set(), set()
    settings = lm.model_dump(exclude_unset=True) if isinstance(lm, LMSpec) else lm if is_dict(lm) else {"model": lm}
    extra, weights = settings.get("extra"), weights_folder(lm if is_dict(lm) else settings)
    if weights is not None:
        read_outside(os.path.expanduser(weights), base)
        pass_door("reads outside its folder", weights, weights, base, at, form="model", asked=False)
    names, servers = _sent(settings)
    for server in sorted(servers):
        if describe_host(server).startswith("a service beside"):
            connect(server)
    for text in walk(extra):
        if isinstance(text, str) and text != weights and any(existing(text, base)):
            read_outside(text, base)  # such as a file of credentials
    hosts = {_host(server) for server in servers if not is_loopback(server)}
    for host in sorted(hosts):
        for name in sorted(names):
            send_variables([name], host)
    return names, hosts


def _sent(lm: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the variables and servers in a model's settings. The provider's own servers count if they receive a
    variable that is not named after the provider."""
    names = {str(lm["api_key_env"])} if lm.get("api_key_env") else set[str]()
    servers = {str(lm["api_base"])} if lm.get("api_base") else set[str]()
    for text in walk(lm.get("extra")):
        if isinstance(text, str):
            names |= set(VARIABLE.findall(text))
            servers |= set(_SERVER.findall(text))
    if not lm.get("api_base") and not all(_is_named_after(name, model := str(lm.get("model") or "")) for name in names):
        servers.add(f"the servers of {re.split('[/:]', model.removeprefix('litellm/'))[0] or model}")
    return names, servers


def _is_named_after(variable: str, model: str) -> bool:
    """Return True if a variable has the name of a model's provider, the first part of its name, as whole words."""
    provider, *rest = re.split("[/:]", model.removeprefix("litellm/"))
    words = re.sub(r"\W", "_", provider.upper())
    return bool(provider and rest) and f"_{words}_" in f"_{variable.upper()}_"


def _host(server: str) -> str:
    try:
        return urlsplit(server).netloc.rpartition("@")[2] or server
    except ValueError:
        return server


def locate_weights(lm: Any, base: Path) -> Any:
    """Return a model's settings with the folder of its weights as an absolute path, if it is next to the workflow file.
    lm: as written: a name, or a mapping. base: the folder of the workflow file."""
    written = weights_folder(lm)
    if written is None or os.path.isabs(written) or not (base / written).exists():
        return lm
    return _with_folder(lm, str((base / written).resolve()))


def relocate_weights(lm: Any, base: Path, folder: Path) -> Any:
    """Return the settings for a file in another folder: with a relative path if the weights are in that folder."""
    lm = locate_weights(lm, base)
    written = weights_folder(lm)
    if written is None or not os.path.isabs(written) or not Path(written).is_relative_to(folder.resolve()):
        return lm
    return _with_folder(lm, f"./{os.path.relpath(written, folder.resolve())}")


def _with_folder(lm: Any, place: str) -> Any:
    settings: Mapping[str, Any] = lm if is_dict(lm) else {"model": lm}
    extra = settings.get("extra")
    if is_dict(extra) and "path" in extra:
        return {**settings, "extra": {**extra, "path": place}}
    named = _FOLDER.fullmatch(str(settings["model"]))
    assert named is not None
    return {**settings, "model": named[1] + place} if is_dict(lm) else named[1] + place


def locate_lms(spec: Spec, base: Path) -> Spec:
    """Return a spec with the weights of its `lm` and `roles` located."""
    roles = {role: _located(lm, base) for role, lm in spec.roles.items()}
    return spec.model_copy(update={"lm": _located(spec.lm, base), "roles": roles})


def _located(lm: LMSpec, base: Path) -> LMSpec:
    written = {"model": lm.model, "extra": lm.extra}
    found = locate_weights(written, base)
    return lm if found is written else lm.model_copy(update={k: v for k, v in found.items() if v != written[k]})
