"""Lenses (`durable.lens/v1`): how records of one schema version are read as records of the next.

`parse` reads a lens strictly. `prove` shows, before it is installed, that it turns every document that the old schema
accepts into one that the new schema accepts, or refuses it. `promote` runs a chain of lenses on a record.
"""

from __future__ import annotations

from headrace.json.lens.envelope import Lens, parse, promote, prove

__all__ = ["Lens", "parse", "promote", "prove"]
