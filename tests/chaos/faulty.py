"""The api, the sealer, the relay and the folder as they are, on faulty clients: what `headrace dev --app` and a template's
Handler name.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from tests.chaos import injector


def create_app() -> Any:
    """Returns the API's application, in a process whose clients meet faults."""
    injector.install(os.environ, "api")
    from functions.api.app import create_app as create

    return create()


def sealer(event: dict[str, Any], context: object) -> Any:
    """Handles an event as the sealer does, in a process whose clients meet faults."""
    return _sealer()(event, context)


@functools.cache
def _sealer() -> Any:
    injector.install(os.environ, "sealer")
    from functions.sealer.handler import handler

    return handler


def relay(event: dict[str, Any], context: object) -> Any:
    """Handles an event as the relay does, in a process whose clients meet faults."""
    return _relay()(event, context)


@functools.cache
def _relay() -> Any:
    injector.install(os.environ, "relay")
    from functions.relay.handler import handler

    return handler


def folder(event: dict[str, Any], context: object) -> Any:
    """Handles an event as the folder does, in a process whose clients meet faults."""
    return _folder()(event, context)


@functools.cache
def _folder() -> Any:
    injector.install(os.environ, "folder")
    from functions.folder.handler import handler

    return handler
