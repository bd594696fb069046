"""How long one call to a store may take, in seconds."""

from __future__ import annotations

DYNAMODB_S = 2.0  # within the budget of an append there is time for a second try
OBJECT_STORE_S = 2.0
