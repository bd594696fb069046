"""Runs one stateless API process: uvicorn on a socket that the parent has bound, or on a port that it has reserved.

    python -m local.api_process --listen-fd 5 --app functions.api.app:create_app
    python -m local.api_process --port 40001 --app functions.api.app:create_app

While the process is replaced, connections to an inherited socket wait; those to a reserved port are refused. Prints
`ready` when it serves.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
from typing import Any

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from local.connections import MAX_MESSAGE_BYTES
from local.lifeline import exit_with_parent
from local.request_log import RequestLog
from local.socket_door import SocketDoor

DRAIN_SECONDS = 1
# Longer than any pause of a client or of the proxy, so that this side never closes under a request.
KEEP_ALIVE_SECONDS = 3600


def load_app(name: str) -> Any:
    """Imports the factory named `module:factory`, calls it, and returns the application. Raises ImportError or
    AttributeError if there is no such module or factory.
    """
    module, _, factory = name.partition(":")
    return getattr(importlib.import_module(module), factory)()


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print("ready", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Serves the application over HTTP until SIGTERM, SIGINT or the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m local.api_process", description=__doc__)
    door = parser.add_mutually_exclusive_group(required=True)
    door.add_argument("--listen-fd", type=int, help="an inherited socket")
    door.add_argument("--port", type=int, help="a port of loopback")
    parser.add_argument("--app", required=True)
    parser.add_argument("--sockets", help="the function behind the WebSocket API, whose sockets this process holds")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--verbose", action="store_true", help="print one line for each request")
    options = parser.parse_args(arguments)
    exit_with_parent()
    app = load_app(options.app)
    if options.sockets:
        app = SocketDoor(app, options.sockets, os.environ["AWS_ENDPOINT_URL"])
    if options.verbose:
        app = RequestLog(app)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=EnvelopeProtocol,
        ws="websockets-sansio" if options.sockets else "none",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # as API Gateway
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
    if options.port is not None:
        listener = socket.create_server(("127.0.0.1", options.port), backlog=1024, reuse_port=True)
    else:
        listener = socket.socket(fileno=options.listen_fd)
    # Not at the top: AWS's libraries come with it, and others need only the protocol of this module.
    from functions.wiring import spare_start_up

    spare_start_up()
    _Server(config).run(sockets=[listener])


_HEAD = (
    b"HTTP/1.1 400 Bad Request\r\n"
    b"content-type: application/json; charset=utf-8\r\n"
    b"cache-control: no-store\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"cross-origin-resource-policy: cross-origin\r\n"
    b"access-control-allow-origin: *\r\n"
    b"connection: close\r\n"
)


class EnvelopeProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, except that errors have the API's JSON form."""

    def send_400_response(self, msg: str) -> None:
        """Answers an invalid HTTP request with a 400 in the API's form, and closes the connection."""
        body = orjson.dumps({"error": {"code": "bad_request", "message": msg.rstrip(".").lower()}})
        self.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (_HEAD, len(body), body))
        self.transport.close()


if __name__ == "__main__":
    main()
