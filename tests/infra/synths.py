"""Synths, one for each environment and set of values in a session."""

from __future__ import annotations

import functools
from typing import Any

from infra import synth
from infra.environments import PROD


@functools.cache
def synthesize(environment: str = PROD.name, **values: Any) -> str:
    """Returns the text of a template, with values of the environment replaced."""
    return synth.synthesize(environment=environment, values=values)
