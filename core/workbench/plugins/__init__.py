"""Discovery, loading and isolation of plugins, and the hooks that plugins implement."""

from workbench.plugins.hookspecs import hookimpl as hookimpl
from workbench.plugins.manager import (
    GROUP as GROUP,
    KINDS as KINDS,
    Plugins as Plugins,
    plugins as plugins,
    try_imports as try_imports,
)
