"""Settings of every test."""

from __future__ import annotations

from hypothesis import settings

# The machine is shared and noisy: how long one example takes says nothing.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
