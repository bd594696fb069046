"""Ends a process when its parent does. It needs the standard library alone: the emulator of the deployed template, whose
environment is its own, imports it, too.
"""

from __future__ import annotations

import os
import sys
import threading


def exit_with_parent() -> None:
    """Starts a thread that ends this process at once when its standard input reaches its end, because the parent, which
    holds the other end, has ended.

    It works on every system, and also if the parent is killed without a chance to clean up.
    """

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
