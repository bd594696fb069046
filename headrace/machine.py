"""The seam through which a process opens its stores elsewhere than on AWS: on a single machine, for example.

Nothing here or in a deployment implements it. `headrace dev --data` names its own implementation in the environment of
each process that it starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headrace.objects import Objects
    from headrace.tables.dynamodb import Store

VARIABLE = "HEADRACE_MACHINE"
"""Names a function as `module:name`, which takes the environment and returns a `Machine`; absent on AWS."""


class Machine(Protocol):
    """The stores of one machine, shared by all threads of a process."""

    def store(self) -> Store:
        """Returns what the adapters of tables call."""

    def objects(self) -> Objects:
        """Returns the object store."""

    def client(self, service: str) -> Any:
        """Returns a client with the calls of boto3's; None for a service that has an endpoint of its own."""


def machine_of(environment: Mapping[str, str] = os.environ) -> Machine | None:
    """Returns the machine that an environment names; None if it names none, so that the stores are on AWS."""
    named = environment.get(VARIABLE)
    if not named:
        return None
    module, _, name = named.partition(":")
    open_machine: Callable[[Mapping[str, str]], Machine] = getattr(import_module(module), name)
    return open_machine(environment)
