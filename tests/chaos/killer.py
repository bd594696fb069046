"""Kills processes of a running emulator at random, evenly: API processes, the dispatcher, the sealer's instance; and
the whole server, if it keeps its data, which is then started again.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.support.emulated_cloud import DevServer

MODULES = {
    "api": "local.api_process",
    "dispatcher": "local.dispatcher",
    "folder": "local.lambda_runtime",
    "sealer": "local.lambda_runtime",
}
_LONGEST_NAME = 15  # of a process, in Linux
Victims = Callable[[dict[str, Any]], dict[str, list[int]]]


def victims(state: dict[str, Any]) -> dict[str, list[int]]:
    """Returns the processes of each kind, from a state file's content."""
    pids: dict[str, int] = state["pids"]
    return {
        "api": [pid for name, pid in pids.items() if name.startswith("api")],
        "dispatcher": [pid for name, pid in pids.items() if name == "dispatcher"],
        "sealer": list(state["functions"].values()),
    }


def feature_victims(state: dict[str, Any]) -> dict[str, list[int]]:
    """Returns the processes of each kind of those that keep feature tables."""
    folder = [pid for name, pid in state["functions"].items() if name.startswith("FolderFunction")]
    return {"api": victims(state)["api"], "folder": folder}


def next_kind(done: Counter[str], available: dict[str, list[int]], random: Random) -> str | None:
    """Returns the kind to kill next: a random one of those that have a process and were killed at most once more than
    the least killed; None if there is none.
    """
    least = min(done[kind] for kind in available)
    kinds = [kind for kind, pids in available.items() if pids and done[kind] <= least + 1]
    return random.choice(kinds) if kinds else None


class Killer(threading.Thread):
    """Kills `kills` processes, spread over the load, until told to stop.

    Args:
        share: how much of the load is done, 0 to 1.
        victims: returns the processes of each kind that may be killed, from the state file's content.
        pause_s: the least time between two kills, on average.
    """

    def __init__(
        self,
        server: DevServer,
        random: Random,
        kills: int,
        pause_s: float,
        share: Callable[[], float],
        stop: threading.Event,
        victims: Victims = victims,
    ) -> None:
        super().__init__(name="killer", daemon=True)
        self._server = server
        self._random = random
        self._kills = kills
        self._pause_s = pause_s
        self._share = share
        self._stop_asked = stop
        self._victims = victims
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        while self.done.total() < self._kills:
            if self._stop_asked.wait(self._pause_s * (0.5 + self._random.random())):
                return
            if self.done.total() + self._random.random() > self._share() * self._kills:
                continue
            try:
                available = self._victims(self._server.state_now())
            except json.JSONDecodeError:
                continue
            if "HEADRACE_DATA" in self._server.state["environment"]:
                available["server"] = [self._server.process.pid]
            kind = next_kind(self.done, available, self._random)
            if kind == "server":
                self._server.kill_and_restart()
                self.done[kind] += 1
            elif kind is not None and kill(self._random.choice(available[kind]), MODULES[kind]):
                self.done[kind] += 1


def kill(pid: int, module: str) -> bool:
    """Kills the process if it still is what it was; whether it did."""
    try:
        if Path(f"/proc/{pid}/comm").read_text().strip() != module[:_LONGEST_NAME]:
            return False
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True
