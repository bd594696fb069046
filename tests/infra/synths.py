"""Synths, one for each environment and set of values in a session."""

from __future__ import annotations

import functools
import json
from typing import Any

from infra import synth
from infra.environments import PROD
from local.template import joined


@functools.cache
def synthesize(environment: str = PROD.name, **values: Any) -> str:
    """Returns the text of a deployment's templates as one, with values of the environment replaced."""
    return json.dumps(joined(map(json.loads, stacks(environment, **values).values())))


@functools.cache
def stacks(environment: str = PROD.name, **values: Any) -> dict[str, str]:
    """Returns the text of each stack's template by the name of its file, the data's first."""
    return synth.synthesize(environment=environment, values=values)
