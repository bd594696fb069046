"""A tiny ASGI application that shows what reached it: the stand-in for the API in tests of the emulator."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from local.environment import client

# Paths whose client left before the answer ended, in this process.
_left: list[str] = []


def create_app() -> Any:
    """Returns the application; `headrace dev --app` calls this factory."""
    return _app


async def _app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    path = scope["raw_path"].decode()
    if path == "/health":
        await _answer(send, 200, b"ok")
    elif path == "/sse":
        await _events(receive, send)
    elif path == "/left":
        await _answer(send, 200, json.dumps(_left).encode())
    elif path == "/refuse":
        await _answer(send, 413, b"no")
    elif path == "/empty":
        await _answer(send, 204, None)
    elif path == "/not-modified":
        await _answer(send, 304, None)
    elif path == "/chunks":
        await _chunks(send)
    else:
        await _echo(scope, receive, send)


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    body = {
        "pid": os.getpid(),
        "method": scope["method"],
        "raw_path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "size": size,
        "headers": [[name.decode(), value.decode()] for name, value in scope["headers"]],
        "environment": {k: v for k, v in os.environ.items() if k.startswith(("HEADRACE_", "AWS_"))},
    }
    await _answer(send, 200, json.dumps(body).encode())


async def _answer(send: Any, status: int, body: bytes | None) -> None:
    headers = [(b"ETag", b'"A-b"'), (b"Stream-Next-Offset", b"0Aa")]
    if body is not None:
        headers.append((b"Content-Length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body or b""})


async def _chunks(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for size in (1, 100_000, 3_000_000):
        await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


async def _events(receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    left = asyncio.ensure_future(_until_disconnect(receive))
    for number in range(100):
        await send({"type": "http.response.body", "body": f"data: {number}\n\n".encode(), "more_body": True})
        await asyncio.wait({left}, timeout=0.05)
        if left.done():
            _left.append("/sse")
            return
    left.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _until_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# What `sockets` was told of sockets that ended, in this process.
_ended: list[Any] = []


def sockets(event: Any, context: Any) -> Any:
    """Stands in for the function behind the WebSocket API: does what the message says, and answers with the event."""
    about = event["requestContext"]
    if about["routeKey"] == "$connect":
        return {"statusCode": int(event["headers"].get("x-status", "200"))}
    if about["routeKey"] == "$disconnect":
        _ended.append(about["disconnectStatusCode"])
        return {"statusCode": 200}
    word, _, rest = event["body"].partition(" ")
    if word == "post":
        connection, _, text = rest.partition(" ")
        post(os.environ["AWS_ENDPOINT_URL"], connection or about["connectionId"], text)
    elif word == "silent":
        return {"statusCode": 200}
    elif word == "fail":
        raise RuntimeError("as asked")
    shown = {"event": event, "pid": os.getpid(), "ended": _ended, "left_ms": context.get_remaining_time_in_millis()}
    return {"statusCode": 200, "body": json.dumps(shown)}


def post(endpoint: str, connection: str, text: str) -> None:
    """Sends a message to a client, as the relay does."""
    client("apigatewaymanagementapi", endpoint).post_to_connection(ConnectionId=connection, Data=text.encode())
