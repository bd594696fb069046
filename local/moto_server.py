"""The emulated AWS: patched moto behind HTTP/1.1, one request at a time.

    python -m local.moto_server --port 0

prints one line when it is ready, `ready http://127.0.0.1:PORT`, and serves until SIGTERM. Everything runs on one event
loop and an action is never interrupted, so each one is atomic; a long poll waits without blocking the loop. Requests to
the four most used services (DynamoDB, its streams, S3, SQS) go straight to moto's handlers; others go through moto's
own Flask application, which costs three times as much.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import json
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote_to_bytes
from xml.sax.saxutils import escape

import uvicorn
from botocore.exceptions import ClientError

from local import access, connections, moto_hardening
from local.access import AccessDoor
from local.access_calls import Call, call_of_absence, json_calls, object_calls
from local.lifeline import exit_with_parent
from local.moto_streams import unserved_wait

LOOK_AGAIN_SECONDS = 0.05
DRAIN_SECONDS = 1
SIGNATURE_AGE = timedelta(minutes=5)
BAD_SIGNATURE = "InvalidSignatureException"
_SIGNED = "%Y%m%dT%H%M%SZ"
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
Handler = Callable[..., Any]


class MotoApp:
    """An ASGI application that passes requests to moto, after a check of permissions. Create it after
    `moto_hardening.install()`.
    """

    def __init__(self, door: AccessDoor) -> None:
        from moto.core.request import Request
        from moto.dynamodb.responses import DynamoHandler
        from moto.dynamodbstreams.responses import DynamoDBStreamsHandler
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from moto.s3.responses import S3Response
        from moto.sqs.responses import SQSResponse

        class ServerRequest(Request):
            from_wsgi_server = True

        self._request: type[Any] = ServerRequest
        self._everything_else: Any = DomainDispatcherApplication(create_backend_app)
        self._by_target: dict[str, Handler] = {
            "DynamoDB_20120810": DynamoHandler.dispatch,
            "DynamoDBStreams_20120810": DynamoDBStreamsHandler.dispatch,
            "AmazonSQS": SQSResponse.dispatch,
        }
        self._s3 = S3Response
        self._door = door
        self._connections = connections.Connections()
        _stop_moto_from_waiting()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request (ASGI `http`), or a socket of an API process. A request that breaks off before its end is
        not executed, as on AWS.
        """
        if scope["type"] == "websocket":
            sent = {name: value.decode("latin-1") for name, value in scope["headers"]}
            if access.is_foreign(sent.get(b"host", ""), sent.get(b"origin")):
                await receive()
                await send({"type": "websocket.close"})
            else:
                await self._connections.attach(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        environ = _environ(scope, body)
        answer = self._refusal(environ, body)
        if answer is None and scope["path"].startswith(connections.PATH):
            answer = await self._connections.answer(scope["method"], scope["path"], body)
        status, headers, body = answer or await self._answer_in_time(environ)
        if status == 404 and _is_for_objects(environ):
            status, headers, body = self._refusal_of_absence(environ) or (status, headers, body)
        # Uvicorn's own date is seconds old when the loop is busy, and clients set their clocks by it.
        dated = [header for header in headers if header[0].lower() != b"date"]
        dated.append((b"date", formatdate(usegmt=True).encode()))
        await send({"type": "http.response.start", "status": status, "headers": dated})
        await send({"type": "http.response.body", "body": body})

    def _refusal(self, environ: dict[str, Any], body: bytes) -> Answer | None:
        """Returns the response that denies access (403 for S3, 400 for other services, as on AWS); None if the request
        is allowed.
        """
        if access.is_foreign(environ.get("HTTP_HOST", ""), environ.get("HTTP_ORIGIN")):
            return _access_denied(environ, access.FOREIGN)
        reason = self._door.denied(environ.get("HTTP_AUTHORIZATION", ""), lambda: _calls(environ, body))
        return _access_denied(environ, reason) if reason else _untimely(environ)

    def _refusal_of_absence(self, environ: dict[str, Any]) -> Answer | None:
        """Returns the 403 response that S3 sends instead of a 404 to a caller that may not list the bucket; None if it
        may.
        """
        reason = self._door.denied(
            environ.get("HTTP_AUTHORIZATION", ""), lambda: call_of_absence(_calls(environ, b""))
        )
        return _access_denied(environ, reason) if reason else None

    async def _answer_in_time(self, environ: dict[str, Any]) -> Answer:
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        body = environ["wsgi.input"]
        while True:
            unserved_wait.set(None)
            body.seek(0)
            answer = self._answer(dict(environ))
            unserved = unserved_wait.get()
            if unserved is None:
                return answer
            wait, there_is_something = unserved
            deadline = deadline or loop.time() + wait
            if loop.time() >= deadline:
                return answer
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            while not there_is_something() and loop.time() < deadline:  # much cheaper than to look in vain
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    def _answer(self, environ: dict[str, Any]) -> Answer:
        handler = self._handler(environ)
        if handler is None:
            return _through_wsgi(self._everything_else, environ)
        request = self._request(environ)
        try:
            result = handler(request, request.raw_url, dict(request.headers))
        except ClientError as exc:
            result = 400, {}, exc.response["Error"]["Message"]
        status, headers, body = result if len(result) == 3 else (200, {}, result)
        content = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else b"".join(body)
        return int(status), _headers(headers, content, head=environ["REQUEST_METHOD"] == "HEAD"), content

    def _handler(self, environ: dict[str, Any]) -> Handler | None:
        """Returns moto's handler for a request to one of the four most used services; None for all others."""
        target = environ.get("HTTP_X_AMZ_TARGET", "").split(".", 1)[0]
        if target:
            return self._by_target.get(target)
        if not _is_for_objects(environ):
            return None
        bucket, _, key = environ["RAW_URI"].partition("?")[0].lstrip("/").partition("/")
        if not bucket:
            return self._s3.bucket_dispatch
        return self._s3.key_dispatch if key else self._s3.ambiguous_dispatch


def _is_for_objects(environ: dict[str, Any]) -> bool:
    return "/s3/aws4_request" in environ.get("HTTP_AUTHORIZATION", "")


def _calls(environ: dict[str, Any], body: bytes) -> list[Call]:
    """Returns the calls for which IAM decides whether the request is allowed."""
    if environ["PATH_INFO"].startswith(connections.PATH):
        return connections.calls(environ["REQUEST_METHOD"], environ["PATH_INFO"])
    if _is_for_objects(environ):
        headers = {
            name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name[:5] == "HTTP_"
        }
        return object_calls(environ["REQUEST_METHOD"], environ["RAW_URI"], headers, body)
    return json_calls(environ.get("HTTP_X_AMZ_TARGET", ""), body)


def _access_denied(environ: dict[str, Any], reason: str) -> Answer:
    """Returns an AccessDenied response, in S3's XML form with status 403, or in the JSON form of the other services
    with status 400. Prints the reason on standard error.
    """
    print(f"AccessDenied: {reason}", file=sys.stderr, flush=True)
    if _is_for_objects(environ):
        text = f"<Error><Code>AccessDenied</Code><Message>{escape(reason)}</Message></Error>".encode()
        headers = [(b"content-type", b"application/xml"), (b"content-length", str(len(text)).encode())]
        return 403, headers, b"" if environ["REQUEST_METHOD"] == "HEAD" else text
    content = json.dumps({"__type": "AccessDeniedException", "message": reason}).encode()
    return 400, _headers({"content-type": "application/x-amz-json-1.0"}, content, head=False), content


def _untimely(environ: dict[str, Any]) -> Answer | None:
    """Returns the response of DynamoDB (and other JSON services) to a call that was signed more than 5 minutes from now;
    None if it was not. "In most cases, a request must reach AWS within five minutes of the time stamp in the request" (IAM
    User Guide, AWS Signature Version 4 for API requests); the text is that of DynamoDB.
    """
    text = environ.get("HTTP_X_AMZ_DATE", "")
    if not text or not environ.get("HTTP_X_AMZ_TARGET"):
        return None
    now = datetime.now(UTC)
    signed = datetime.strptime(text, _SIGNED).replace(tzinfo=UTC)
    if abs(now - signed) <= SIGNATURE_AGE:
        return None
    if signed < now:
        edge, relation, sign = now - SIGNATURE_AGE, "expired: {} is now earlier than", "-"
    else:
        edge, relation, sign = now + SIGNATURE_AGE, "not yet current: {} is still later than", "+"
    message = f"Signature {relation.format(text)} {edge:{_SIGNED}} ({now:{_SIGNED}} {sign} 5 min.)"
    content = json.dumps({"__type": f"com.amazon.coral.service#{BAD_SIGNATURE}", "message": message}).encode()
    return 400, _headers({"content-type": "application/x-amz-json-1.0"}, content, head=False), content


def _stop_moto_from_waiting() -> None:
    """Replaces moto's ReceiveMessage with one that never sleeps: if there are no messages, it puts the requested wait
    into `unserved_wait`, and `MotoApp` waits instead.
    """
    from moto.sqs.models import SQSBackend

    receive = SQSBackend.receive_message

    def receive_message(self: Any, queue_name: str, count: int, wait_seconds: int, *args: Any, **kwargs: Any) -> Any:
        messages = receive(self, queue_name, count, 0, *args, **kwargs)
        if not messages and wait_seconds:
            queue = self.get_queue(queue_name)
            unserved_wait.set((wait_seconds, lambda: bool(queue.messages)))
        return messages

    SQSBackend.receive_message = receive_message  # type: ignore[method-assign,assignment]


async def _body(receive: Any) -> bytes | None:
    """Returns the whole body; None if the client left before its end."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _environ(scope: Any, body: bytes) -> dict[str, Any]:
    """Converts an ASGI request to a WSGI environment, with the raw path in RAW_URI, which S3 keys need."""
    raw_path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    raw_uri = (raw_path + b"?" + query if query else raw_path).decode("latin-1")
    host, port = scope["server"] or ("127.0.0.1", 80)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(raw_path).decode("latin-1"),
        "QUERY_STRING": query.decode("latin-1"),
        "RAW_URI": raw_uri,
        "REQUEST_URI": raw_uri,
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        if key != "TRANSFER_ENCODING":
            environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value.decode("latin-1")
    environ["CONTENT_LENGTH"] = str(len(body))
    return environ


def _headers(headers: dict[str, Any], body: bytes, *, head: bool) -> list[tuple[bytes, bytes]]:
    """Returns moto's headers with the correct Content-Length. An answer to HEAD keeps the length that moto states."""
    lower = {str(name).lower(): str(value) for name, value in headers.items()}
    if not (head and "content-length" in lower):
        lower["content-length"] = str(len(body))
    lower.pop("status", None)
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lower.items()]


def _through_wsgi(application: Any, environ: dict[str, Any]) -> Answer:
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> None:
        started.append((status, headers))

    chunks = application(environ, start_response)
    try:
        body = b"".join(chunks)
    finally:
        if hasattr(chunks, "close"):
            chunks.close()
    status, headers = started[-1]
    return (
        int(status.split(" ", 1)[0]),
        [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers],
        body,
    )


def main(arguments: list[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT; with `--lifeline`, also until the end of standard input. Port 0 means any free
    port; the ready line names it.
    """
    parser = argparse.ArgumentParser(prog="python -m local.moto_server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lifeline", action="store_true", help="end when standard input ends")
    access.add_options(parser)
    options = parser.parse_args(arguments)
    if options.lifeline:
        exit_with_parent()
    try:
        moto_hardening.install()
    except moto_hardening.UnsupportedMoto as exc:
        raise SystemExit(f"cannot start the emulator's AWS: {exc}") from exc
    listener = socket.create_server((options.host, options.port), backlog=512)
    app = MotoApp(AccessDoor(options.policies, options.record))
    # moto keeps millions of small objects alive; a full collection for each 700 of them is most of a put's time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=connections.MAX_MESSAGE_BYTES,
        lifespan="off",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=DRAIN_SECONDS,
        timeout_keep_alive=3600,
        server_header=False,
        date_header=False,
    )
    # The socket listens already, so a request sent on this line waits in the backlog and is served.
    print(f"ready http://{options.host}:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
