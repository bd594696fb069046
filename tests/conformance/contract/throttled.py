"""The application on tables that refuse every write while a switch is set, as throttled ones do."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from functions import access
from functions.api import app
from functions.api.context import assemble
from headrace.aws import aws_stores, region_of
from headrace.errors import StoreThrottled
from headrace.settings import Settings
from tests.conformance.contract.configurations import SWITCH

WRITES = frozenset({"commit", "set_note"})


class Throttled:
    """A store of which `WRITES` are refused while the file that the environment names exists."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._switch = Path(os.environ[SWITCH])

    def __getattr__(self, name: str) -> Any:
        if name in WRITES and self._switch.exists():
            return self._refuse
        return getattr(self._store, name)

    def _refuse(self, *_: object, **__: object) -> None:
        raise StoreThrottled("throttled by a test")


def create_app() -> FastAPI:
    """Returns the product's application, without keys, on stores whose writes of the log can be throttled."""
    settings = Settings.from_environment(os.environ)
    stores = aws_stores(settings, region_of(os.environ), dynamodb_timeout_s=2.0, s3_read_timeout_s=2.0)
    refusing: dict[str, Any] = {"wal": Throttled(stores.wal), "watermarks": Throttled(stores.watermarks)}
    return app.create_app(assemble(replace(stores, **refusing), access.parse("")))
