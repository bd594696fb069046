"""Lenses (`durable.lens/v1`): they convert records of one schema version to the next when records are read.

`parse` reads a lens strictly. `prove` shows, before a lens is installed, that it converts every document that the old
schema accepts to one that the new schema accepts, or refuses the lens. `promote` runs a chain of lenses on a record.
"""

from __future__ import annotations

from headrace.json.lens.envelope import Lens, parse, promote, prove

__all__ = ["Lens", "parse", "promote", "prove"]
