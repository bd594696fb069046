"""The two forms of an export request, protobuf and JSON, and of its answers (OTLP 1.x, "OTLP/HTTP").

A request in protobuf becomes the document that the same request has in JSON, so that one reader serves both. The library
of protobuf is imported with the first such request.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.exceptions import HTTPException

from headrace.errors import InvalidRequest, PayloadTooLarge
from headrace.json import jsontext
from headrace.log.requests import JSON

if TYPE_CHECKING:
    from google.protobuf.message import Message

PROTOBUF = "application/x-protobuf"
MAX_MESSAGES = 1_000_000  # of a protobuf body: an empty one takes two bytes, and a microsecond here
_IDS = frozenset({"trace_id", "span_id", "parent_span_id"})  # hexadecimal in JSON; all other bytes are base64


class Signal(NamedTuple):
    """A kind of telemetry, as OTLP names its messages.

    Attributes:
        module: the module of its service's messages.
        noun: begins the names of its messages.
        rejected: the member of an answer that counts what was rejected, in JSON and in protobuf.
    """

    module: str
    noun: str
    rejected: tuple[str, str]


TRACES = Signal("trace", "ExportTrace", ("rejectedSpans", "rejected_spans"))
LOGS = Signal("logs", "ExportLogs", ("rejectedLogRecords", "rejected_log_records"))


def check_content_type(content_type: str | None) -> str:
    """Returns the content type of a request if it is one of OTLP's. Raises HTTPException (415) otherwise."""
    if content_type not in (PROTOBUF, JSON):
        raise HTTPException(415, f"content-type must be {PROTOBUF} or {JSON}")
    return content_type


def parse(signal: Signal, content_type: str, body: bytes) -> Mapping[str, Any]:
    """Returns an export request as the JSON document that it is, or would be.

    Raises:
        InvalidRequest: the body is malformed.
        PayloadTooLarge: there are too many messages in it.
    """
    if content_type == JSON:
        document = jsontext.loads(body)
        if not isinstance(document, dict):
            raise InvalidRequest("an OTLP request must be an object")
        return document
    from google.protobuf.message import DecodeError

    message = _message(signal, "ServiceRequest")
    try:
        message.ParseFromString(body)
    except DecodeError as exc:
        raise InvalidRequest("body is not a valid OTLP request in protobuf") from exc
    return _document_of(message, [MAX_MESSAGES])


def encode_answer(signal: Signal, content_type: str, rejected: int, reason: str) -> bytes:
    """Returns the answer to a request of which `rejected` items were not accepted."""
    in_json, in_protobuf = signal.rejected
    if content_type == JSON:
        partial = {in_json: str(rejected), "errorMessage": reason}
        return jsontext.dumps({"partialSuccess": partial} if rejected else {})
    message: Any = _message(signal, "ServiceResponse")
    if rejected:
        setattr(message.partial_success, in_protobuf, rejected)
        message.partial_success.error_message = reason
    encoded: bytes = message.SerializeToString()
    return encoded


def encode_status(message: str) -> bytes:
    """Returns a `google.rpc.Status` in protobuf that has a message alone."""
    # The api ships no library of Status. Fields 1 and 2 of this message, too, are a number and a text.
    told: Any = _message(TRACES, "PartialSuccess")
    told.error_message = message
    encoded: bytes = told.SerializeToString()
    return encoded


def _message(signal: Signal, kind: str) -> Message:
    """Returns a new message of a signal's service."""
    service = import_module(f"opentelemetry.proto.collector.{signal.module}.v1.{signal.module}_service_pb2")
    message: Message = getattr(service, f"{signal.noun}{kind}")()
    return message


def _document_of(message: Message, left: list[int]) -> dict[str, Any]:
    """Returns a message as its JSON document, but for numbers of 64 bits, which stay numbers; `left` has how many messages
    it may have.
    """
    left[0] -= 1
    if left[0] < 0:
        raise PayloadTooLarge(f"the request has too many values: limit={MAX_MESSAGES}")
    document: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None:
            several = field.is_repeated
            document[field.camelcase_name] = (
                [_document_of(item, left) for item in value] if several else _document_of(value, left)
            )
        elif isinstance(value, bytes):
            document[field.camelcase_name] = value.hex() if field.name in _IDS else b64encode(value).decode()
        else:
            document[field.camelcase_name] = value
    return document
