"""The run database: one SQLite file.

This room knows no budget and no optimizer.
"""

from workbench.store.database import TABLES, Store, dumps, now
from workbench.store.run_lock import RunLock
from workbench.store.schema import M001_INITIAL

__all__ = [
    "Store",
    "RunLock",
    "dumps",
    "now",
    "TABLES",
    "M001_INITIAL",
]
