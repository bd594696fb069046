"""One stateless API process: uvicorn on a socket that the parent has bound.

python -m local.api_process --listen-fd 5 --app functions.api.app:create_app
"""

from __future__ import annotations

import argparse
import importlib
import socket
from typing import Any

import uvicorn

from local.http_protocol import EnvelopeProtocol
from local.lifeline import exit_with_parent

DRAIN_SECONDS = 1
# Longer than any pause of a client or of the proxy, so that this side never closes under a request.
KEEP_ALIVE_SECONDS = 3600


def load_app(name: str) -> Any:
    """Calls the factory behind `module:factory`. Raises ImportError or AttributeError."""
    module, _, factory = name.partition(":")
    return getattr(importlib.import_module(module), factory)()


def main(arguments: list[str] | None = None) -> None:
    """Serves until SIGTERM, SIGINT or the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m local.api_process", description=__doc__)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--app", required=True)
    parser.add_argument("--log-level", default="info")
    options = parser.parse_args(arguments)
    exit_with_parent()
    config = uvicorn.Config(
        load_app(options.app),
        loop="uvloop",
        http=EnvelopeProtocol,
        ws="none",
        lifespan="auto",
        access_log=False,
        log_level=options.log_level,
        # The application's own headers are what a test compares; uvicorn adds only Date.
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        backlog=1024,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=options.listen_fd)])


if __name__ == "__main__":
    main()
