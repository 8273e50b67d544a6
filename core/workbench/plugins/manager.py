"""The plugin manager: finds plugins by entry point, sets broken ones aside, and looks up what they register."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

import pluggy

from workbench.base.distribution import BUNDLED, how_to_get
from workbench.errors import PluginError, suggest
from workbench.plugins import guard as plugin_guard, hookspecs

GROUP = "workbench"
NO_PLUGINS = "WORKBENCH_NO_PLUGINS"  # set by --no-plugins, also for the processes that a run starts

#: The kinds of things that can be registered, each with its name in messages.
KINDS = {
    "node_kinds": "node kind",
    "optimizers": "optimizer",
    "lms": "LM provider",
    "metrics": "metric",
    "readers": "dataset reader",
    "sandboxes": "sandbox",
    "environments": "environment",
    "exporters": "exporter",
    "edits": "edit",
    "trackers": "tracker",
    "executors": "executor",
    "claims": "source of claims",
    "policies": "reader of rules",
}


@dataclass(frozen=True)
class PluginInfo:
    """A plugin as `workbench plugin list` shows it. error: the reason why it was set aside."""

    name: str
    distribution: str
    version: str
    module: str
    hooks: tuple[str, ...] = ()
    provides: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    error: str | None = None


class Plugins:
    """All loaded plugins, with a table of names for each kind of thing that they register.

    Args:
        entries: entry points to load.
        extra: (name, plugin) of plugins that are loaded already, as in tests.
        refused: entry points that are set aside unloaded, each with the reason.

    If two plugins, or two registered things, have the same name, the first in `entries` stays and the other plugin is
    set aside.
    """

    def __init__(
        self,
        entries: Iterable[EntryPoint] = (),
        extra: Iterable[tuple[str, Any]] = (),
        refused: Mapping[EntryPoint, str] | None = None,
    ):
        self.manager = pluggy.PluginManager("workbench")
        self.manager.add_hookspecs(hookspecs)
        self.infos: list[PluginInfo] = []
        self.set_aside: dict[str, str] = {}
        self._tables: dict[str, dict[str, tuple[Any, str]]] = {kind: {} for kind in KINDS}
        self._packages: dict[str, str] = {}  # distribution and version, for plugins that are not bundled
        by_name: dict[str, EntryPoint] = {}
        for entry in entries:
            if refused and entry in refused:
                dist, version = _distribution(entry)
                self._set_aside(entry.name, PluginInfo(entry.name, dist, version, entry.value, error=refused[entry]))
                continue
            other = by_name.setdefault(entry.name, entry)
            if _distribution(other) != _distribution(entry):
                dist, version = _distribution(entry)
                reason = f"{_distribution(other)[0]} has a plugin of this name already; uninstall one of them"
                info = PluginInfo(entry.name, dist, version, entry.value, error=reason)
                self._set_aside(f"{entry.name} of {dist}", info)
        for entry in by_name.values():
            dist, version = _distribution(entry)
            self._load(entry.name, entry.load, dist, version, entry.value)
        for name, plugin in extra:
            self._load(name, lambda plugin=plugin: plugin, "(in process)", "", getattr(plugin, "__name__", name))

    def _load(self, name: str, load: Callable[[], Any], dist: str, version: str, module: str) -> None:
        """Import and register one plugin. Set it aside if it raises anything."""
        plugin: Any = None
        if dist not in BUNDLED:
            self._packages[name] = f"{dist} {version}".strip(" ()")
        try:
            with self._named(name, "being imported"):
                plugin = load()
                self.manager.register(plugin, name)
                self._check_hooks(plugin, name)
                provides = self._collect(plugin, name)
        except KeyboardInterrupt:  # Ctrl-C
            raise
        except BaseException as error:
            if plugin is not None and self.manager.is_registered(plugin):
                self.manager.unregister(plugin)
            self._forget(name)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self._set_aside(name, PluginInfo(name, dist, version, module, error=reason))
            return
        hooks = tuple(sorted(h.name for h in self.manager.get_hookcallers(plugin) or ()))
        self.infos.append(PluginInfo(name, dist, version, module, hooks, provides))

    def _set_aside(self, key: str, info: PluginInfo) -> None:
        self.set_aside[key] = info.error or ""
        self.infos.append(info)

    @contextmanager
    def _named(self, name: str, doing: str) -> Generator[None]:
        """Watch a plugin's code while it runs. Bundled plugins are not watched."""
        if name not in self._packages:
            yield
            return
        with plugin_guard.named(f"plugin '{name}' ({self._packages[name]})", doing):
            yield

    def _check_hooks(self, plugin: Any, name: str) -> None:
        """Refuse misspelled hooks, as pluggy's check_pending does, but for this plugin alone."""
        for caller in self.manager.get_hookcallers(plugin) or ():
            if not caller.has_spec():
                known = [name for name, value in vars(hookspecs).items() if hasattr(value, "workbench_spec")]
                raise PluginError(f"plugin '{name}': unknown hook '{caller.name}'. {suggest(caller.name, known)}")

    def _collect(self, plugin: Any, owner: str) -> dict[str, list[str]]:
        provides: dict[str, list[str]] = {}
        for kind, table in self._tables.items():
            function = getattr(plugin, f"register_{kind}", None)
            if function is None or not self._is_hook(plugin, f"register_{kind}"):
                continue

            def register(name: str, target: Any, *, table: Any = table, kind: str = kind) -> None:
                if name in table:
                    raise PluginError(
                        f"plugin '{owner}' registers the {KINDS[kind]} '{name}', "
                        f"which plugin '{table[name][1]}' has registered already"
                    )
                table[name] = (target, owner)
                provides.setdefault(kind, []).append(name)

            function(register)
        return provides

    def _is_hook(self, plugin: Any, hook: str) -> bool:
        return any(caller.name == hook for caller in self.manager.get_hookcallers(plugin) or ())

    def _forget(self, owner: str) -> None:
        for table in self._tables.values():
            for name in [n for n, (_, o) in table.items() if o == owner]:
                del table[name]

    def warnings(self) -> list[str]:
        """List one line for each plugin that was set aside."""
        return [f"plugin '{name}' was set aside: {why}" for name, why in self.set_aside.items()]

    def names(self, kind: str) -> list[str]:
        """List the registered names of one kind, sorted."""
        return sorted(self._tables[kind])

    def get(self, kind: str, name: str) -> Any:
        """Return a registered object. Import it on first use if it was registered by address. Raises PluginError."""
        if name not in self._tables[kind]:
            text = f"unknown {KINDS[kind]} '{name}'. {how_to_get(kind, name) or suggest(name, self.names(kind))}"
            if self.set_aside:
                text += (
                    f" Plugins that failed to load: {', '.join(sorted(self.set_aside))} (see `workbench plugin list`)."
                )
            raise PluginError(text)
        target, owner = self._tables[kind][name]
        if not isinstance(target, str):
            return target
        module, _, attribute = target.partition(":")
        try:
            with self._named(owner, f"loading its {KINDS[kind]} '{name}'"):
                target = getattr(importlib.import_module(module), attribute)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PluginError(
                f"{KINDS[kind]} '{name}' of plugin '{owner}' cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        self._tables[kind][name] = (target, owner)
        return target

    def owner(self, kind: str, name: str) -> str:
        """Return the name of the plugin that registered a name."""
        return self._tables[kind][name][1]

    def call(self, hook: str, **values: Any) -> None:
        """Call a hook in every plugin. A plugin that raises is set aside, and the command goes on."""
        for impl in list(getattr(self.manager.hook, hook).get_hookimpls()):
            try:
                with self._named(impl.plugin_name, f"busy in its hook {hook}"):
                    impl.function(**{name: values[name] for name in impl.argnames})
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.set_aside[impl.plugin_name] = f"raised in {hook}: {type(error).__name__}: {error}"
                self.manager.unregister(impl.plugin)


def _distribution(entry: EntryPoint) -> tuple[str, str]:
    """Return the name and version of the distribution that declares a plugin."""
    return ("(unknown)", "") if entry.dist is None else _read_metadata(entry.dist)


@cache  # each access to a name or version parses the distribution's metadata again
def _read_metadata(distribution: Distribution) -> tuple[str, str]:
    return distribution.name, distribution.version


@cache
def plugins() -> Plugins:
    """Return the plugins of this process, loaded once. Bundled ones come first, so that no other takes their names.
    WORKBENCH_LOAD_PLUGINS="a,b" loads only those ("" loads none). WORKBENCH_NO_PLUGINS=1 loads only the bundled
    ones."""
    return Plugins(_entries(), refused=_fatal)


def _entries() -> list[EntryPoint]:
    """List the entry points to load, in order."""
    entries: Iterable[EntryPoint] = entry_points(group=GROUP)
    only = os.environ.get("WORKBENCH_LOAD_PLUGINS")
    if os.environ.get(NO_PLUGINS):
        entries = [entry for entry in entries if _is_bundled(entry)]
    if only is not None:
        wanted = {name.strip() for name in only.split(",") if name.strip()}
        entries = [entry for entry in entries if entry.name in wanted]
    return sorted(entries, key=lambda entry: (not _is_bundled(entry), entry.name))


def _is_bundled(entry: EntryPoint) -> bool:
    return _distribution(entry)[0] in BUNDLED


#: Entry points whose import ends the process or never returns, as `try_imports` found.
_fatal: dict[EntryPoint, str] = {}
_LOADED = b"workbench: it loads\n"
_TRIAL = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from workbench.plugins.manager import load_alone; load_alone(*sys.argv[2:])"
)


def try_imports() -> None:
    """Import each plugin that is not bundled in its own process, all in parallel, before `plugins` loads them. Plugins
    that end their process, or do not finish within PATIENCE seconds, are set aside without being loaded. Does nothing
    if `plugins` was called before."""
    if plugins.cache_info().currsize:
        return
    import json
    import subprocess
    import tempfile
    import time
    from signal import Signals

    with ExitStack() as files:
        trials: list[tuple[EntryPoint, Any, Any]] = []
        for entry in (entry for entry in _entries() if not _is_bundled(entry)):
            said = files.enter_context(tempfile.TemporaryFile())  # not a pipe, which a grandchild could keep open
            command = [sys.executable, "-P", "-c", _TRIAL, json.dumps(sys.path), entry.name, _distribution(entry)[0]]
            silent = subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=silent, stdout=said, stderr=silent, start_new_session=True)
            files.callback(_end_group, process)
            trials.append((entry, process, said))
        end = time.monotonic() + plugin_guard.PATIENCE
        for entry, process, said in trials:
            try:
                code = process.wait(max(0.0, end - time.monotonic()))
                reason = f"its import ends Python ({f'exit code {code}' if code >= 0 else Signals(-code).name})"
            except subprocess.TimeoutExpired:
                reason = f"its import is not done after {plugin_guard.PATIENCE:g} s"
            said.seek(0)
            if not said.read().endswith(_LOADED):
                _fatal[entry] = reason


def _end_group(process: Any) -> None:
    """End a process and its children."""
    import signal

    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def load_alone(name: str, distribution: str) -> None:
    """Load one plugin, report it on stdout, and end this process. Started by `try_imports`."""
    Plugins(
        entry for entry in entry_points(group=GROUP) if (entry.name, _distribution(entry)[0]) == (name, distribution)
    )
    sys.stdout.flush()
    os.write(1, _LOADED)
    os._exit(0)
