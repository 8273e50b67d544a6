"""Plugins: found, loaded, kept apart; and the hooks that they implement."""

from workbench.plugins.hookspecs import hookimpl
from workbench.plugins.manager import GROUP, KINDS, Plugins, plugins, try_imports

__all__ = [
    "GROUP",
    "KINDS",
    "Plugins",
    "hookimpl",
    "plugins",
    "try_imports",
]
