"""Plugins: found, loaded, kept apart; and the hooks that they implement."""

from workbench.plugins.hookspecs import hookimpl as hookimpl
from workbench.plugins.manager import GROUP as GROUP
from workbench.plugins.manager import KINDS as KINDS
from workbench.plugins.manager import Plugins as Plugins
from workbench.plugins.manager import plugins as plugins
from workbench.plugins.manager import try_imports as try_imports
