"""Names the plugin that hangs, exits the process or raises KeyboardInterrupt."""

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

    Ctrl-C meanwhile passes as a KeyboardInterrupt that names it, too. Raises PluginError for a KeyboardInterrupt of
    the plugin's own, so that it is set aside as for any other exception.

    Args:
        plugin: its name and distribution.
        doing: what it does, such as "being imported".
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
    """Print a line if `os._exit` is called by this thread: nothing else is run then, no handler and no `finally`."""
    end, here = os._exit, (os.getpid(), threading.get_ident())

    def named_end(status: int) -> None:
        if (os.getpid(), threading.get_ident()) == here:  # not a child that was forked, nor another thread
            alert(line)
            status = status or 1  # the command has not done what it was asked for
        end(status)

    os._exit = named_end  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = end


@contextmanager
def _telling_ctrl_c() -> Generator[list[bool]]:
    """A list that holds something once Ctrl-C was pressed. A run has a handler of its own, which raises nothing."""
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
