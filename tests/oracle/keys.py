"""What `_routing_keys` must answer."""

from __future__ import annotations


def page(all_of: list[str | None], after: str | None, limit: int) -> tuple[list[str], str | None]:
    """Returns the keys of a page in the order of their UTF-8 bytes, and where the next one begins (None at the end)."""
    distinct = sorted({key for key in all_of if key is not None}, key=lambda key: key.encode())
    later = [key for key in distinct if after is None or key.encode() > after.encode()]
    return later[:limit], later[limit - 1] if len(later) > limit else None
