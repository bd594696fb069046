"""The emulator's main module. It ends when its parent does, however that one ends.

The repository's root is on this process's path alone: functions must not find the sources here.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))

from ministack.app import main
from ministack.core.lambda_runtime import Worker

from local.lifeline import exit_with_parent

# After each invocation it waits this long (seconds) for the first line of log, for the lines to end, and in all. It comes
# with 50 ms for the first, which a client of a function that logs nothing would wait for; lines that come later are
# shown with the next invocation.
LOG_WAITS_S = (0.002, 0.002, 0.25)

if __name__ == "__main__":
    assert len(Worker._drain_stderr_bounded.__defaults__) == len(LOG_WAITS_S)
    Worker._drain_stderr_bounded.__defaults__ = LOG_WAITS_S
    exit_with_parent()
    main()
