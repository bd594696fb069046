"""The emulated Lambda API, as far as one function calls another: `Invoke` that waits for the answer, on a loopback port.

An invocation takes an instance that is free, or starts one, as on Lambda: one that waits for a slow stranger delays no
other.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from local import access
from local.access import AccessDoor
from local.access_calls import Call
from local.deployment import Deployment, Function
from local.lambda_runtime import FunctionFailed, Invoker

log = logging.getLogger("headrace.lambda_api")
Instance = Callable[[Function, str], Invoker]
_INVOKE = re.compile(r"/2015-03-31/functions/([^/]+)/invocations")


class LambdaApi(ThreadingHTTPServer):
    """The HTTP server. `url` is its address.

    Args:
        instance: creates an instance that runs a function, given a name for it.
        port: of loopback; 0 means any free one. Another process may hold it open, without listening.
    """

    daemon_threads = True
    allow_reuse_port = True

    def __init__(
        self, deployment: Deployment, instance: Instance, port: int = 0, door: AccessDoor | None = None
    ) -> None:
        self.door = door or AccessDoor()
        self._deployment = deployment
        self._instance = instance
        self._lock = threading.Lock()
        self._free: dict[str, list[Invoker]] = {}
        self._made = 0
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Returns the URL on which it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def function(self, name: str) -> Function | None:
        """Returns the function that a name or ARN, of itself or of an alias, means; None if there is none."""
        last = name.rpartition(":function:")[2]
        return self._deployment.functions.get(self._deployment.aliases.get(last, last))

    def invoke(self, function: Function, event: Any) -> tuple[Any, str]:
        """Invokes the function in an instance that is free, and returns its answer and the request id. Raises
        FunctionFailed.
        """
        with self._lock:
            free = self._free.setdefault(function.name, [])
            if free:
                instance = free.pop()
            else:
                self._made += 1
                instance = self._instance(function, f"{function.name}-{self._made}")
        try:
            return instance.invoke(event)
        finally:
            with self._lock:
                free.append(instance)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LambdaApi

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, answer, headers = self._result_of(body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Suppresses the log line of each request: functions log what they do."""

    def _result_of(self, body: bytes) -> tuple[int, Any, dict[str, str]]:
        if access.is_foreign(self.headers.get("Host", ""), self.headers.get("Origin")):
            return _refused(403, "AccessDeniedException", access.FOREIGN)
        found = _INVOKE.fullmatch(urlsplit(self.path).path)
        if found is None or self.headers.get("X-Amz-Invocation-Type", "RequestResponse") != "RequestResponse":
            return _refused(404, "UnknownOperationException", f"the emulator has no such operation: {self.path}")
        name = unquote(found[1])
        reason = self.server.door.denied(
            self.headers.get("Authorization", ""), lambda: [Call("lambda:InvokeFunction", name)]
        )
        if reason:
            log.error("AccessDenied: %s", reason)
            return _refused(403, "AccessDeniedException", reason)
        function = self.server.function(name)
        if function is None:
            return _refused(404, "ResourceNotFoundException", f"no such function: {name}")
        try:
            answer, _ = self.server.invoke(function, json.loads(body or b"null"))
        except FunctionFailed as exc:
            return 200, {"errorMessage": str(exc)}, {"X-Amz-Function-Error": "Unhandled"}
        return 200, answer, {}


def _refused(status: int, code: str, message: str) -> tuple[int, Any, dict[str, str]]:
    return status, {"message": message}, {"x-amzn-ErrorType": code}
