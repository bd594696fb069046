"""The services of AWS that a single machine still needs as a server: where the sockets of clients are posted to
(`local.connections`).

    python -m local.machine.server

prints `ready http://127.0.0.1:PORT`, and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import uvicorn

from local import access
from local.connections import PATH, Connections
from local.lifeline import exit_with_parent


class App:
    """The ASGI application."""

    def __init__(self) -> None:
        self._connections = Connections()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request, or the socket of an API process."""
        sent = {name: value.decode("latin-1") for name, value in scope["headers"]}
        is_foreign = access.is_foreign(sent.get(b"host", ""), sent.get(b"origin"))
        if scope["type"] == "websocket":
            if is_foreign:
                await receive()
                await send({"type": "websocket.close"})
            else:
                await self._connections.attach(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, headers, content = 404, list[tuple[bytes, bytes]](), b"not found"
        if scope["path"].startswith(PATH) and not is_foreign:
            status, headers, content = await self._connections.answer(scope["method"], scope["path"], body)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def main(arguments: list[str] | None = None) -> None:
    """Serves on any free port of loopback."""
    argparse.ArgumentParser(prog="python -m local.machine.server", description=__doc__).parse_args(arguments)
    exit_with_parent()
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(
        App(),
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        lifespan="off",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
