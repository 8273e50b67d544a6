"""The capabilities of a workflow file, found by a walk over the tree that the loader runs.

Each part of a file declares its own capabilities (`workbench.spec`). This module only finds the parts: in all sections
of the file, in each form that the loader accepts, with the values that `search:` may insert, and in the workflow files
that it refers to. It imports no user code and starts nothing.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench.base.type_guards import is_dict
from workbench.errors import PluginError, SpecError
from workbench.lm import is_loopback, split_model, weights_folder
from workbench.plugins import plugins
from workbench.spec import (
    MODEL,
    NODES,
    PATH,
    PREFIX,
    PYTHON,
    VARIABLE,
    Declaration,
    Found,
    Part,
    Place,
    Power,
    Source,
    Written,
    ask_address,
    describe_host,
    each,
    inside,
    load_yaml_file,
    one_or_each,
    part,
    powers_of,
    read_path,
    run_python,
)
from workbench.task.metric import metric_options, parse_call
from workbench.task.rows import folder_of
from workbench.task.searched import put_searched
from workbench.task.shards import leads_out, reader_of
from workbench.task.workflow_file import referred_functions
from workbench.workflow import node_class, node_tree, written_place

#: The sections of a file with their declarations. Other sections cannot reach outside the workbench.
SECTIONS: Mapping[str, Declaration] = {
    "lm": MODEL,
    "roles": each(MODEL),
    "nodes": NODES,
    "types": PYTHON,
    "configurations": each(inside(lm=MODEL, nodes=NODES)),
    "data": part("rows"),
    "metric": one_or_each(part("metric")),
    "optimize": each(part("optimizer")),
    "proof": inside(labels=PATH),
    "attacks": PATH,
    "executor": part("executor"),
    "track": one_or_each(part("tracker")),
    # of a file of `workbench data synthesize`
    "synthesize": lambda at: (inside(**{"from": part("rows")}) if is_dict(at.value) else part("rows"))(at),
    "each": NODES,
    "keep": one_or_each(part("metric")),
}
#: Sections that are not read if a workflow is only called.
UNUSED = ("data", "metric", "optimize", "proof", "search", "executor", "track", "attacks")
#: Keys of `data` that name files.
_DATA = ("file", "train", "val", "test")
_SERVER = re.compile(r"https?://\S+", re.IGNORECASE)
#: The most characters of nodes to check for values under `search:`: one copy of the node for each value.
_MOST_SEARCHED = 20_000_000
_MORE = "more values under `search:` than are looked at"
_TOO_MUCH = [Power("uses what does not say what it does", _MORE, _MORE, ("search",))]


@dataclass
class FoundPowers:
    """The capabilities found. powers: of a file and those that it refers to. texts: the latter's content, by path.
    models: the locations of models' settings."""

    powers: list[Power] = field(default_factory=list[Power])
    texts: dict[Path, str] = field(default_factory=dict[Path, str])
    models: list[Place] = field(default_factory=list[Place])


def find_powers(value: Any, base: Path, *, called: bool = False, follow: bool = True) -> FoundPowers:
    """Find the capabilities of a workflow file.

    Args:
        value: the file's content.
        base: the folder that its paths are relative to.
        called: the file is called, not improved: skip its data, metric and search.
        follow: include the workflow files that it refers to.
    """
    walk = _Walk(follow)
    walk.read(value, base.resolve(), called)
    return walk.found


class _Walk:
    def __init__(self, follow: bool):
        self.follow, self.found = follow, FoundPowers()

    def read(self, value: Any, base: Path, called: bool) -> None:
        if not is_dict(value):
            return
        used = {key: part for key, part in value.items() if not (called and key in UNUSED)}
        file = _File(self, base)
        file.take(inside(**SECTIONS)(Written(used, (), base)))
        file.searching = True
        for tree in () if called else _searched(used):
            file.take(_TOO_MUCH if tree is None else inside(**SECTIONS)(Written(tree, (), base)))
        file.end()

    def refer(self, setting: Written) -> None:
        """Follow a reference to another workflow file: `FILE`, or `FILE#nodes.NAME`. A file name may contain `#`, so
        both the whole text and the part before `#` are tried."""
        text = str(setting.value)
        for name in dict.fromkeys((text, text.partition("#")[0])):
            if not name:
                continue
            power = read_path(setting, name)
            self.found.powers += [power] if power.files or power.outside else []
            for path in power.files if self.follow else ():
                if path.is_file() and path not in self.found.texts:
                    self._follow(path)

    def _follow(self, path: Path) -> None:
        try:
            source: Source = load_yaml_file(path)
        except SpecError:
            return  # reported when the file is used
        self.found.texts[path] = source.text
        self.read(source.value, path.parent, called=True)


class _File:
    """The parts of one file. Under `search:`, values that may be combined are checked together."""

    def __init__(self, walk: _Walk, base: Path):
        self.walk, self.base = walk, base
        self.searching, self._keys = False, list[tuple[set[str], set[str], Place, bool]]()
        self._worlds = list[tuple[Written, Any, bool]]()

    def take(self, found: Found) -> None:
        for one in found:
            if isinstance(one, Power):
                self.walk.found.powers.append(one)
                continue
            setting = Written(one.value, one.at, self.base)
            if one.of == "file":
                self.walk.refer(setting)
            else:
                self.take(getattr(self, f"_{one.of}")(setting))

    def _node(self, setting: Written) -> Found:
        raw = setting.value
        if not is_dict(raw):
            return
        yield from (Part("file", one.value, one.at) for one in referred_functions(setting))
        for kind, tree in _normal_forms(raw):
            for one in powers_of("node_kinds", kind, Written(tree, setting.at, self.base)):
                depth = len(setting.at)
                yield replace(one, at=(*one.at[:depth], *written_place(raw, one.at[depth:])))

    def _model(self, setting: Written) -> Found:
        lm = {"model": setting.value} if isinstance(setting.value, str) else setting.value
        if not is_dict(lm):
            return
        self.walk.found.models.append(setting.at)
        names, servers = _sent(lm)
        self._keys.append((names, servers, setting.at, self.searching))
        for server in sorted(servers):
            if describe_host(server).startswith("a service beside"):
                yield ask_address(setting, server)
        for one in Written(lm.get("extra"), (*setting.at, "extra"), self.base).texts():
            read = read_path(one, one.value)  # such as a file of credentials
            if one.at[-1] != "path" and read.outside and read.files:
                yield read
        weights = weights_folder(lm)
        if weights and (read := read_path(setting, weights)).outside:  # a model's name, moved together with the model
            yield replace(read, files=(), form="")
        name = split_model(str(lm.get("model") or ""))[0]
        if name in plugins().names("lms"):
            yield from powers_of("lms", name, Written(lm, setting.at, self.base))

    def _environment(self, setting: Written) -> Found:
        """Find the capabilities of a node's {environment, settings}."""
        name = setting.value.get("environment")
        self._worlds.append((setting, name, self.searching))
        return self._world(setting, name)

    def _world(self, setting: Written, name: Any) -> Found:
        if not isinstance(name, str):
            return
        if name.startswith(PREFIX):
            yield run_python(Written(name, (*setting.at, "environment"), self.base), name)
        elif name in plugins().names("environments") and is_dict(setting.value.get("settings")):
            yield from powers_of("environments", name, setting / "settings")
        elif name in plugins().names("environments"):
            yield from powers_of("environments", name, Written({}, setting.at, self.base))

    def _metric(self, setting: Written) -> Found:
        written = setting.value
        if isinstance(written, str) and written.startswith(PREFIX):
            yield run_python(setting, written)
            return
        try:
            name, options = _metric_call(written)
        except SpecError:
            return  # the loader reports it
        if name in plugins().names("metrics"):
            at, alone = setting.at, True  # as a call, or as the value of one option
            if is_dict(written):
                at, alone = (*setting.at, name), not is_dict(written[name])
            for one in powers_of("metrics", name, Written(options, at, self.base)):
                yield replace(one, at=at) if alone else one

    def _optimizer(self, setting: Written) -> Found:
        return _powers_of_named("optimizers", replace(setting, base=self.base))

    def _executor(self, setting: Written) -> Found:
        """Find the capabilities of an executor: it always starts workers, and its settings may add more."""
        setting = replace(setting, base=self.base)
        for name in _named("executors", setting):
            text = f"workers of the executor '{name}'"
            yield Power("starts a program", text, text, setting.at)
        yield from _powers_of_named("executors", setting)

    def _tracker(self, setting: Written) -> Found:
        """Find the capabilities of a tracker. It has no settings here; its own configuration names its server."""
        for name in _named("trackers", setting):
            text = f"the server that the tracker '{name}' reports to"
            yield Power("asks an address", text, text, setting.at)

    def _rows(self, setting: Written) -> Found:
        data = {"file": setting.value} if isinstance(setting.value, str) else setting.value
        for key in _DATA if is_dict(data) else ():
            if not isinstance(place := data.get(key), str):
                continue
            at = (*setting.at, key) if is_dict(setting.value) else setting.at
            prefix, colon, rest = place.partition(":")
            named = bool(colon) and prefix.isidentifier()
            reader = prefix if named else reader_of(place)
            if reader not in plugins().names("readers"):
                outside = named or read_path(Written(place, at, self.base), place).outside
                outside = outside or leads_out(place, self.base)
                yield Power("reads a path", place, place, at, (), outside)
                continue
            options = data.get("options")
            given = {**(options if is_dict(options) else {}), "location": rest if named else place}
            start = Written(given, at, folder_of(rest, self.base) if named else self.base, self.base)
            for one in powers_of("readers", reader, start):
                if isinstance(one, Power) and one.kind == "reads a path":
                    what = f"{prefix}:{one.what}" if named else one.what
                    outside = one.outside or leads_out(rest if named else place, start.base)
                    one = replace(one, text=place, what=what, at=at, outside=outside)
                yield one

    def end(self) -> None:
        """Add the capabilities of settings in combination. Values under `search:` may be combined with any other."""
        worlds = [(setting, name) for setting, name, _ in self._worlds]
        if any(searched for *_, searched in self._worlds):
            names = {name for _, name in worlds if isinstance(name, str)}
            for setting, _ in worlds:
                for name in sorted(names):
                    self.take(self._world(setting, name))
        keys = [(names, servers, at) for names, servers, at, _ in self._keys]
        if any(searched and (names or servers) for names, servers, _, searched in self._keys):
            every = (set[str]().union(*(n for n, _, _ in keys)), set[str]().union(*(s for _, s, _ in keys)))
            keys = [(*every, ("search",))]
        for names, servers, at in keys:
            places = sorted({_host(server) for server in servers if not is_loopback(server)})
            if names and places:
                text = f"{', '.join(sorted(names))} to {', '.join(places)}"
                self.walk.found.powers.append(Power("sends a variable of the environment", text, text, at))


def _named(kind: str, setting: Written) -> Mapping[str, Any]:
    """Return the settings of `name` or {name: settings}, by its name if it is registered."""
    named = {setting.value: {}} if isinstance(setting.value, str) else setting.value
    return {n: named[n] for n in named if n in plugins().names(kind)} if is_dict(named) else {}


def _powers_of_named(kind: str, setting: Written) -> Found:
    for name, given in _named(kind, setting).items():
        yield from powers_of(kind, name, Written(given if is_dict(given) else {}, (*setting.at, name), setting.base))


def _normal_forms(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a node in the form that the loader runs. A node that the loader refuses may be any kind that it names, or
    any kind at all if it names none, e.g. if `search:` writes into a node of another file."""
    known = plugins().names("node_kinds")
    try:
        tree = node_tree(raw)
    except (SpecError, PluginError):
        named = [raw.get("kind"), *raw]
        for kind in {name for name in named if isinstance(name, str) and name in known} or known:
            with suppress(PluginError):  # the loader reports it
                yield kind, {node_class(kind).primary: raw.get(kind), **raw}
    else:
        yield tree["kind"], tree


def _metric_call(written: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(written, str):
        name, args, options = parse_call(written)
        try:
            parameters = inspect.signature(plugins().get("metrics", name)).parameters
        except (PluginError, TypeError, ValueError):
            parameters = {}
        return name, {**dict(zip(parameters, args, strict=False)), **options}
    if not is_dict(written) or len(written) != 1:
        raise SpecError("name one metric")
    name, given = next(iter(written.items()))
    try:
        return name, metric_options(plugins().get("metrics", name), given)
    except PluginError as error:
        raise SpecError(str(error)) from None


def _sent(lm: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the variables and servers in a model's settings. The provider's own servers count if they receive a
    variable that is not named after the provider."""
    names = {str(lm["api_key_env"])} if lm.get("api_key_env") else set[str]()
    servers = {str(lm["api_base"])} if lm.get("api_base") else set[str]()
    for one in Written(lm.get("extra"), (), Path()).texts():
        names |= set(VARIABLE.findall(one.value))
        servers |= set(_SERVER.findall(one.value))
    *providers, _ = str(lm.get("model") or "").upper().split("/")
    if providers and not lm.get("api_base") and not all(any(p in n.upper() for p in providers) for n in names):
        servers.add(f"the servers of {'/'.join(providers).lower()}")
    return names, servers


def _host(server: str) -> str:
    try:
        return urlsplit(server).netloc.rpartition("@")[2] or server
    except ValueError:
        return server


def _searched(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any] | None]:
    """Yield the parts of the file that `search:` would change, with each value inserted. None: too many to check."""
    search, left = value.get("search"), _MOST_SEARCHED
    held: dict[tuple[str, ...], dict[str, Any]] = {}
    for address, domain in search.items() if is_dict(search) else ():
        top, *keys = str(address).split(".")
        depth = 1 if top == "nodes" and keys else 0
        held.setdefault((top, *keys[:depth]), {})[".".join(keys[depth:])] = domain
    for (top, *name), domains in held.items():
        part = value.get(top)
        if name:
            part = part.get(name[0]) if is_dict(part) else None
        for made in put_searched(part, domains):
            if (left := left - len(json.dumps(made, default=str))) < 0:
                yield None
                return
            yield {top: {name[0]: made} if name else made}
