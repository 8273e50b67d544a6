"""Plugins: found, loaded, kept apart; the hooks that they implement, and the trackers that hear of a run."""

from workbench.plugins.hookspecs import hookimpl
from workbench.plugins.manager import GROUP, KINDS, Plugins, plugins, try_imports
from workbench.plugins.trackers import RunInfo, Tracker, Trackers, check_trackers, trackers_not_ready

__all__ = [
    "GROUP",
    "KINDS",
    "Plugins",
    "RunInfo",
    "Tracker",
    "Trackers",
    "check_trackers",
    "hookimpl",
    "plugins",
    "trackers_not_ready",
    "try_imports",
]
