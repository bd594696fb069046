"""Verb: generations. Removes old generations of an index manifest, once no reader can hold them.

The first one stays: it says that there are others. The watermark names the newest before any goes, so whoever asks it
meets no gap, and whoever does not asks anew when what it holds is old. Whatever a crash leaves, a repeat removes.
"""

from __future__ import annotations

from functions.indexer import policy
from functions.indexer.context import Context
from headrace.errors import Damaged
from headrace.index.manifest import KEPT_MS
from headrace.objects import keys


def remove_generations(context: Context, log_id: str) -> int:
    """Removes what may go; returns how many.

    Raises:
        Damaged: a generation is not what it should be; nothing was removed.
        StoreTimeout, StoreThrottled: repeat later.
    """
    standing = context.indexes.standing(log_id)

    def made_ms(generation: int) -> int:
        found = context.indexes.load(log_id, generation)
        if found is None:
            raise Damaged(f"index manifest is missing: object={keys.index_manifest(log_id, generation)}")
        return found.created_ms

    doomed = policy.outdated(standing, made_ms, context.now_ms() - KEPT_MS)
    if doomed:
        context.stores.watermarks.publish_index(log_id, standing[-1])
        context.stores.objects.delete([keys.index_manifest(log_id, generation) for generation in doomed])
    return len(doomed)
