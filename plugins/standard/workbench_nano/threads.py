"""BLAS with a single thread, for products of small matrices."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController


class OneThread(AbstractContextManager[None]):
    """While anyone is inside, BLAS computes with one thread; then as before.

    Threads that share one small product wait for each other longer than they compute, and where other processes want
    the cores, too, each of these waits lasts a time slice.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._controller: Any = None
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._controller = self._controller or ThreadpoolController()
                self._limits = self._controller.limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()
