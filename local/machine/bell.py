"""The bell of a single machine: a process that has committed something for a trigger rings it, and the dispatcher looks at
once.

It is a datagram socket. A lost ring does no harm: who waits for one looks again after some seconds anyway.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

VARIABLE = "HEADRACE_BELL"  # the path of the socket
_PAUSE_SECONDS = 0.01


def ring() -> None:
    """Wakes the process that waits for the bell, if there is one. Never blocks, and never fails."""
    path = os.environ.get(VARIABLE)
    if path:
        try:
            _sender().sendto(b"", path)
        except OSError:  # nobody waits, or so many rings do that one more tells nothing new
            return


@cache
def _sender() -> socket.socket:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)
    atexit.register(sender.close)
    return sender


class Bell:
    """The receiver of a bell, with a thread. Threads that wait for it see every ring that came after they looked."""

    def __init__(self, path: Path) -> None:
        """Listens on a path; a socket that a predecessor left there is replaced."""
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._changed = threading.Condition()
        self.rings = 0
        self._is_open = True
        self._thread = threading.Thread(target=self._listen, name="bell", daemon=True)
        self._thread.start()

    def wait(self, seen: int, seconds: float) -> None:
        """Waits until the bell has rung more than `seen` times (`rings`), but at most some seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.rings > seen, max(0.0, seconds))

    def close(self) -> None:
        """Stops listening."""
        self._is_open = False
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while True:
            self._socket.recv(1)
            with suppress(BlockingIOError):
                while self._is_open:
                    self._socket.recv(1, socket.MSG_DONTWAIT)
            if not self._is_open:
                return
            with self._changed:
                self.rings += 1
                self._changed.notify_all()
            time.sleep(_PAUSE_SECONDS)  # so that the rings of a busy writer are one
