"""What happens when a socket is opened, sends a message, and is closed: what the events of API Gateway's WebSocket API ask
for. What a key allows is asked again for each message, so that a key that was revoked ends at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from functions.access import Grant, Scope
from functions.api.context import Context
from functions.api.door.errors import error_metric, may_have_written
from functions.api.sockets.channels import Channels
from functions.api.sockets.commands import Command, Ping, Publish, Subscribe, Unsubscribe, decode, request_id_of
from functions.api.topics.appends import count_write, shown_write, write, write_request
from functions.api.topics.calls import TOPICS
from functions.metrics import ApiMetric
from functions.refusals import Forbidden, Unauthorized
from headrace.clock import within_deadline
from headrace.errors import InvalidRequest
from headrace.sockets import session
from headrace.sockets.channel import KIND, MAX_MESSAGE_BYTES
from headrace.sockets.session import Session
from headrace.topics.values import check_name

_log = logging.getLogger(__name__)
_SEQ_BYTES = 18  # of the longest seq and a comma, in an answer


class Unsupported(InvalidRequest):
    """The message is binary."""

    code = "unsupported_message"


class Ended(InvalidRequest):
    """The socket is not open, as far as the table of sessions knows."""

    code = "not_found"


class Refusal(NamedTuple):
    """An error as a client is told of it.

    Attributes:
        status: the status of HTTP that the same error has.
        members: `code` and `message`, and what a program may need to know.
    """

    status: int
    members: dict[str, Any]


class Sockets:
    """The sockets of all clients, as one process serves them. Methods block, and raise nothing."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._channels = Channels(context)

    def connect(self, connection_id: str, headers: Mapping[str, str]) -> int:
        """Opens a socket for the key in the headers (names in lower case). Returns the status of the handshake."""
        context, key_id = self._context, ""
        try:
            context.access.check_sender(headers.get("host"), headers.get("origin"))
            context.access.refresh()
            key_id = context.access.grant(headers.get("authorization")).key_id
            row = session.row_of(connection_id, Session(key_id), context.clock.now_ms())
            with within_deadline(context.settings.request_timeout_ms):
                if context.slots.take(row, key_id) is None:  # nothing is limited
                    context.stores.sessions.put_part(row, None)
            context.meter.add(ApiMetric.Sockets)
            status = 200
        except Exception as exc:  # noqa: BLE001 - the one place where every error becomes a status
            status = self._refusal(exc, "GET").status
        self._count(status)
        context.request_ended(key_id)
        return status

    def disconnect(self, connection_id: str) -> None:
        """Closes a socket. What it is subscribed to, the relay forgets when it next comes by."""
        try:
            with within_deadline(self._context.settings.request_timeout_ms):
                row = self._context.stores.sessions.part(KIND, connection_id)
                if row is not None:
                    self._context.stores.sessions.drop_part(row)
        except Exception:  # noqa: BLE001 - it expires
            _log.warning("socket is not closed: connection_id=%s", connection_id, exc_info=True)
        self._context.request_ended("")

    def receive(self, connection_id: str, text: bytes | None) -> bytes:
        """Executes the command in a message, and returns the answer. `text` is None for a binary message."""
        began = self._context.clock.monotonic()
        request_id, method, key_id, status = b"null", "GET", "", 200
        try:
            if text is None:
                raise Unsupported("binary messages are not supported: send JSON as text")
            key_id, grant, until_ms = self._session(connection_id)
            request_id = request_id_of(text)
            command = decode(text)
            method = "POST" if isinstance(command, Publish) else "GET"
            document = self._execute(connection_id, grant, command, until_ms, began)
        except Exception as exc:  # noqa: BLE001 - the one place where every error becomes a message
            refusal = self._refusal(exc, method)
            status, document = refusal.status, {"op": "error", **refusal.members}
            self._count(status, unknown=may_have_written(exc, method))
        else:
            self._count(status)
        self._context.meter.add(ApiMetric.SocketCommands)
        self._context.request_ended(key_id)
        return _message(document, request_id)

    def _session(self, connection_id: str) -> tuple[str, Grant, int]:
        """Returns the id of the key that opened a socket, what it allows now, and when the socket ends at the latest.

        Raises:
            Ended: there is no such socket.
            Unauthorized: the key was revoked.
        """
        context = self._context
        context.access.refresh()
        with within_deadline(context.settings.request_timeout_ms):
            found = session.find(context.stores.sessions, connection_id)
        if found is None or found[0].expires_ms <= context.clock.now_ms():
            raise Ended("the socket has ended: connect again")
        row, opened = found
        return opened.key_id, context.access.grant_of(opened.key_id), row.expires_ms

    def _execute(
        self, connection_id: str, grant: Grant, command: Command, until_ms: int, began: float
    ) -> dict[str, Any]:
        """Executes a command, and returns the answer's members."""
        match command:
            case Subscribe():
                opened = self._channels.open(connection_id, grant, command, until_ms)
                return {"op": "subscribed", "topics": {name: one._asdict() for name, one in opened.items()}}
            case Unsubscribe():
                names = command.names()
                self._channels.close(connection_id, names)
                return {"op": "unsubscribed", "topics": names}
            case Publish():
                return self._publish(grant, command, began)
            case Ping():
                return {"op": "pong"}

    def _publish(self, grant: Grant, command: Publish, began: float) -> dict[str, Any]:
        grant.require(Scope.WRITE, check_name(command.topic))
        if command.config is not None and Scope.ADMIN not in grant.scopes:
            raise Forbidden("this key may not configure a topic: it lacks the scope admin")
        context, clock = self._context, self._context.clock
        request = write_request(grant, command)
        since = clock.monotonic()
        written = write(context, grant, command.topic, request, configures=command.config is not None)
        measured = count_write(context, request, written, (clock.monotonic() - since) * 1000)
        total = {"server_total_ms": (clock.monotonic() - began) * 1000, **measured}
        performance = {name: round(value, 3) for name, value in total.items()}
        fits = len(request.records) * _SEQ_BYTES <= MAX_MESSAGE_BYTES
        answer = shown_write(command.topic, written, command.return_seqs and fits)
        return {"op": "ack", **answer, "performance": performance}

    def _refusal(self, error: Exception, method: str) -> Refusal:
        """Returns what a client is told of an error: what it would be told over HTTP."""
        if isinstance(error, Unauthorized):
            return Refusal(401, {"code": "unauthorized", "message": "the key is unknown, or was revoked"})
        answer = TOPICS.response_to(error, method)
        members: dict[str, Any] = orjson.loads(answer.body)["error"]
        if "retry-after" in answer.headers:
            members["retry_after_ms"] = int(answer.headers["retry-after"]) * 1000
        return Refusal(answer.status_code, members)

    def _count(self, status: int, *, unknown: bool = False) -> None:
        meter = self._context.meter
        meter.add(ApiMetric.Requests)
        if status >= 400:
            meter.add(error_metric(status, may_have_written=unknown))


def _message(document: dict[str, Any], request_id: bytes) -> bytes:
    """Returns an answer with the request id, whose digits are those of the request."""
    op = orjson.dumps({"op": document.pop("op")})[:-1]
    rest = orjson.dumps(document)[1:]
    return b'%b,"request_id":%b%b%b' % (op, request_id, b"," if document else b"", rest)
