"""The emulated Function URL with streaming: turns requests into events, which instances of the function answer through
the Runtime API.

    python -m local.function_url --listen-fd 5 --instances 3 --timeout 90 --bootstrap
        functions/api/door/streaming/bootstrap

Instances are processes that start as on Lambda: by the artifact's wrapper script, with the command that Lambda would
run. One that dies is replaced. If all are busy, a request waits, where Lambda would start another instance. If the
client leaves, the instance sees its connection end; Lambda would let the instance continue, and discard the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import logging
import os
import socket
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn

from local.api_process import EnvelopeProtocol
from local.lifeline import exit_with_parent
from local.request_log import RequestLog
from local.runtime_api import Broken, Call, RuntimeApi

log = logging.getLogger("headrace.function_url")
REPOSITORY = Path(__file__).resolve().parent.parent
EVENT_BYTES = 6 * 1024 * 1024  # Lambda's limit of a request
SEPARATOR = b"\0" * 8
KEEP_ALIVE_SECONDS = 3600
_TEXT = ("text/", "application/json", "application/xml", "application/javascript")

Json = dict[str, Any]


def event_of(scope: Json, body: bytes, *, request_id: str, at: datetime) -> Json:
    """Returns the event for a request, in payload format 2.0: unchanged path, joined headers, cookies separately."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    headers["x-forwarded-proto"] = scope["scheme"]
    cookies = [cookie for cookie in headers.pop("cookie", "").split("; ") if cookie]
    text = _as_text(body, headers.get("content-type", ""))
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": scope["raw_path"].decode("latin-1"),
        "rawQueryString": scope["query_string"].decode("latin-1"),
        "headers": headers,
        **({"cookies": cookies} if cookies else {}),
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "emulator",
            "domainName": "emulator.lambda-url.us-east-1.on.aws",
            "domainPrefix": "emulator",
            "http": {
                "method": scope["method"],
                "path": scope["path"],
                "protocol": f"HTTP/{scope['http_version']}",
                "sourceIp": (scope.get("client") or ("127.0.0.1", 0))[0],
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": at.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": int(at.timestamp() * 1000),
        },
        **({"body": base64.b64encode(body).decode() if text is None else text} if body else {}),
        "isBase64Encoded": bool(body) and text is None,
    }


def _as_text(body: bytes, content_type: str) -> str | None:
    """Returns the body as text if Lambda would pass it as text; None if it would pass it as base64."""
    if content_type.startswith(_TEXT):
        with suppress(UnicodeDecodeError):
            return body.decode()
    return None


class FunctionUrl:
    """The ASGI application that clients connect to: it turns each request into an event for the function, and streams
    the answer back.
    """

    def __init__(self, api: RuntimeApi) -> None:
        self._api = api

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # before the end of its body: Lambda would hear of nothing
            body += message.get("body", b"")
            more = message.get("more_body", False)
        call_id = str(uuid4())
        call = Call(call_id, event_of(scope, body, request_id=call_id, at=datetime.fromtimestamp(time.time(), UTC)))
        if len(json.dumps(call.event)) > EVENT_BYTES:
            await _refuse(send, 413, "Request Too Long")
            return
        self._api.invoke(call)
        leaving = asyncio.ensure_future(_leave(receive, call))
        try:
            await self._pass_on(call, send)
        finally:
            leaving.cancel()
            call.give_up()

    async def _pass_on(self, call: Call, send: Any) -> None:
        """Sends the function's answer to the client. If it breaks off after it has started, closes the connection
        without an end, since HTTP has no other way to say so.
        """
        start = b""
        started = False
        try:
            async for piece in call.pieces():
                if started:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    continue
                start += piece
                prelude, separator, rest = start.partition(SEPARATOR)
                if separator:
                    await send(_head(json.loads(prelude)))
                    started = True
                    if rest:
                        await send({"type": "http.response.body", "body": rest, "more_body": True})
        except Broken as exc:
            if started:
                raise ConnectionAbortedError(str(exc)) from exc
            await _refuse(send, 502, "Internal Server Error")
            return
        if not started:
            await _refuse(send, 502, "Internal Server Error")
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _head(prelude: Json) -> Json:
    headers = [(name, value) for name, value in prelude["headers"].items()]
    headers += [("set-cookie", cookie) for cookie in prelude.get("cookies", [])]
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": prelude["statusCode"], "headers": encoded}


async def _refuse(send: Any, status: int, message: str) -> None:
    """Sends an error answer as Lambda itself would."""
    body = json.dumps({"Message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _leave(receive: Any, call: Call) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    call.give_up()


class Instances:
    """A starter of the processes that run the function."""

    def __init__(self, bootstrap: Path, api: RuntimeApi) -> None:
        self._api = api
        # What Lambda would have run: its interpreter and its own client, which is not here.
        self._command = (str(bootstrap), sys.executable, "/var/runtime/bootstrap.py")
        self._environment = {
            **os.environ,
            "AWS_LAMBDA_FUNCTION_NAME": "ApiStreaming",
            "LAMBDA_TASK_ROOT": str(REPOSITORY),
        }

    async def keep(self) -> None:
        """Keeps one instance running: starts another whenever a signal kills it. Never returns; raises RuntimeError if
        the instance exits by itself.
        """
        while True:
            endpoint = await self._api.listen()
            environment = {**self._environment, "AWS_LAMBDA_RUNTIME_API": endpoint.address}
            process = await asyncio.create_subprocess_exec(*self._command, env=environment)
            try:
                code = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                await endpoint.close()
            if code >= 0:
                raise RuntimeError(f"an instance ended with exit code {code}")
            log.warning("signal %d ended instance %d: started again", -code, process.pid)


async def serve(
    listener: socket.socket, *, instances: int, bootstrap: Path, timeout_s: float, verbose: bool = False
) -> None:
    """Serves until SIGTERM or SIGINT. Raises RuntimeError if an instance can't run."""
    api = RuntimeApi(timeout_s)
    processes = Instances(bootstrap, api)
    server = uvicorn.Server(
        uvicorn.Config(
            RequestLog(FunctionUrl(api)) if verbose else FunctionUrl(api),
            http=EnvelopeProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
        )
    )
    keepers = [asyncio.ensure_future(processes.keep()) for _ in range(instances)]
    serving = asyncio.ensure_future(_serve_when_ready(server, listener, api, instances))
    try:
        done, _ = await asyncio.wait((serving, *keepers), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (serving, *keepers):
            task.cancel()
        await asyncio.gather(serving, *keepers, return_exceptions=True)


async def _serve_when_ready(server: uvicorn.Server, listener: socket.socket, api: RuntimeApi, instances: int) -> None:
    for _ in range(instances):
        await api.asked.acquire()
    print("ready", flush=True)
    await server.serve(sockets=[listener])


def main(arguments: list[str] | None = None) -> None:
    """Serves on an inherited listening socket until SIGTERM, SIGINT or the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m local.function_url", description=__doc__)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--bootstrap", type=Path, required=True, help="the wrapper script")
    parser.add_argument("--timeout", type=float, required=True, help="of the function, seconds")
    parser.add_argument("--verbose", action="store_true", help="print one line for each request")
    options = parser.parse_args(arguments)
    exit_with_parent()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    listener = socket.socket(fileno=options.listen_fd)
    bootstrap = REPOSITORY / options.bootstrap
    run = serve(
        listener,
        instances=options.instances,
        bootstrap=bootstrap,
        timeout_s=options.timeout,
        verbose=options.verbose,
    )
    asyncio.run(run)


if __name__ == "__main__":
    main()
