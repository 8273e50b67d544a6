"""Executors whose rows run in worker processes: start them, and the rest is here.

`Executor` is the base. The driver (`workbench_workers.crew`) hands out rows and holds ledger, journal, budget and
trust, and a worker (`workbench_workers.worker`) runs rows and asks the driver before it sends anything.
"""

from workbench_workers.crew import Crew as Crew
from workbench_workers.executor import (
    Channel as Channel,
    Executor as Executor,
    Line as Line,
    Secrets as Secrets,
    WorkerSetup as WorkerSetup,
)
from workbench_workers.messages import WorkerLost as WorkerLost
from workbench_workers.sockets import Sockets as Sockets, join_driver as join_driver
from workbench_workers.worker import find_missing as find_missing, work as work
