"""Publishing by creating an object if it is absent: the caller that creates it has published, every other has not."""

from __future__ import annotations

from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects import ObjectMissing, Objects

_TRIES = 4


def publish(objects: Objects, key: str, data: bytes) -> bool:
    """Creates an object: True if `data` is under `key`, False if something else is.

    A lost answer is cleared up by reading what is there; equal bytes are one's own, no matter which call wrote them.

    Raises:
        StoreTimeout: it is unknown whether it was published; look again later.
        StoreThrottled: it was not published.
    """
    doubt: StoreTimeout | None = None
    for _ in range(_TRIES):
        try:
            if objects.create(key, data):
                return True
            existing: bytes | None = objects.get(key)
        except StoreTimeout as exc:
            doubt = exc
            existing = _look(objects, key)
        except StoreThrottled as exc:
            if doubt is None:
                raise
            raise StoreTimeout(f"publication is unclear: object={key}") from exc
        except ObjectMissing:
            existing = None
        if existing is not None:
            return existing == data
    raise StoreTimeout(f"publication is unclear: object={key}") from doubt


def _look(objects: Objects, key: str) -> bytes | None:
    """Returns what is under `key` after a lost answer. Throttled is unclear too: it may have been written."""
    try:
        return objects.get(key)
    except ObjectMissing:
        return None
    except StoreThrottled as exc:
        raise StoreTimeout(f"publication is unclear: object={key}") from exc
