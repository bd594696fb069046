"""One job over a bucket that is a folder, either an index job or one that a surface asked for:
`python -m benchmarks.search.job BUCKET jobs/<id>/input.json.zst`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search.directory import DirectoryObjects
from emr_jobs import job, requested, session
from headrace.objects import Objects, keys


@dataclass(frozen=True)
class FolderDoor:
    """A bucket that is a folder."""

    root: str

    def open(self) -> Objects:
        """Returns the objects in the folder."""
        return DirectoryObjects(Path(self.root))


def main() -> None:
    """Runs the job to its end."""
    root, key = sys.argv[1:]
    run = job.run if keys.requested_job(key) is None else requested.run
    run(session.local(), FolderDoor(root), key)


if __name__ == "__main__":
    main()
