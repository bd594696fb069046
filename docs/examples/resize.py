"""A command for `headrace queue work`: makes one thumbnail, as its job says.

Doing a job twice does no harm: the same job writes the same file, and a file is there whole or not at all.
"""

import json
import os
import sys
from pathlib import Path

TRY_LATER = 75  # EX_TEMPFAIL: not this job's fault, so it rests for --backoff-limit

job = json.load(sys.stdin)
folder = Path("thumbnails")
try:
    folder.mkdir(exist_ok=True)
except OSError as error:
    print(f"{folder}: {error}", file=sys.stderr)
    sys.exit(TRY_LATER)

target = folder / f"{job['width']}-{job['name']}"
unfinished = folder / f".{target.name}.{os.environ['HEADRACE_LEASE_ID']}"
unfinished.write_text(f"{job['name']} at {job['width']} pixels\n")
unfinished.rename(target)
print(f"made {target}, delivery {os.environ['HEADRACE_DELIVERIES']}")
