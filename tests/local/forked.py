"""What the processes of `test_fork_server.py` do."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Obeys the first argument: says what the process is, waits for the end of its input, ends, or fails."""
    match arguments:
        case ["describe", number]:
            found = {
                "pid": os.getpid(),
                "session": os.getsid(0),
                "directory": str(Path.cwd()),
                "environment": dict(os.environ),
                "files": [number for number in range(100) if Path(f"/proc/self/fd/{number}").exists()],
                "random": random.random(),
            }
            os.write(int(number), json.dumps(found).encode())
        case ["wait"]:
            print("waiting", flush=True)
            sys.stdin.read()
        case ["end", code]:
            raise SystemExit(int(code))
        case _:
            raise ValueError("no such order")


if __name__ == "__main__":
    main(sys.argv[1:])
