"""A watch on plugin code: report the plugin that hangs, exits the process or raises KeyboardInterrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

from workbench.base.text import alert
from workbench.errors import PluginError

PATIENCE = 10.0  # seconds before a plugin that does not return is named
_REMEDY = "leave it out with --no-plugins, or uninstall it"


@contextmanager
def named(plugin: str, doing: str) -> Generator[None]:
    """Name a plugin on stderr if its code does not return within PATIENCE seconds, or calls `os._exit`.

    On Ctrl-C in the meantime, the KeyboardInterrupt names the plugin, too.

    Args:
        plugin: the plugin's name and distribution.
        doing: the current step, such as "being imported".

    Raises:
        PluginError: the plugin itself raised KeyboardInterrupt. The caller sets it aside as for any other exception.
    """
    slow = f"{plugin} has been {doing} for {PATIENCE:g} s. To end it, press Ctrl-C; then {_REMEDY}."
    timer = threading.Timer(PATIENCE, alert, [slow])
    timer.daemon = True
    timer.start()
    try:
        with _naming_exit(f"{plugin} ended the process while {doing}: {_REMEDY}."), _telling_ctrl_c() as pressed:
            try:
                yield
            except KeyboardInterrupt as error:
                if pressed:
                    raise KeyboardInterrupt(f"{plugin} was {doing}; {_REMEDY}") from error
                raise PluginError("it raised KeyboardInterrupt") from error
    finally:
        timer.cancel()


@contextmanager
def _naming_exit(line: str) -> Generator[None]:
    """Print a line if this thread calls `os._exit`, which runs no handlers and no `finally` blocks."""
    end, here = os._exit, (os.getpid(), threading.get_ident())

    def named_end(status: int) -> None:
        if (os.getpid(), threading.get_ident()) == here:  # not in a forked child, nor in another thread
            alert(line)
            status = status or 1  # the command did not do its job
        end(status)

    os._exit = named_end  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = end


@contextmanager
def _telling_ctrl_c() -> Generator[list[bool]]:
    """Yield a list that is filled once Ctrl-C was pressed. A run has a handler of its own, which raises nothing."""
    pressed: list[bool] = []

    def handle(number: int, frame: object) -> None:
        pressed.append(True)
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield pressed
    finally:
        if signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)
