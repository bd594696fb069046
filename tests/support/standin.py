"""A local HTTP server in the place of AWS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import pytest


def point_clients_at(patch: pytest.MonkeyPatch, url: str) -> None:
    """Has clients that are created from now on send their calls to `url`, with made-up credentials."""
    for name, value in {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "DEFAULT_REGION": "us-east-1"}.items():
        patch.setenv(f"AWS_{name}", value)
    patch.delenv("AWS_SESSION_TOKEN", raising=False)
    patch.setenv("AWS_ENDPOINT_URL", url)


@contextmanager
def in_place_of_aws(server: ThreadingHTTPServer, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serves in a thread for as long as the block lasts; clients that are created meanwhile send their calls there."""
    point_clients_at(patch, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
