"""The messages of a client (§ 7.9), decoded. Each is a JSON object whose member `op` names the command."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from functions.api.door import requests
from functions.api.topics.config import Number
from functions.api.topics.records import WriteBody
from headrace.errors import InvalidRequest
from headrace.sockets.channel import MAX_LIMIT, PAGE_BYTES

MAX_TOPICS = 256  # of one command, as of a watch
MAX_NODES = 256  # of one command: they are stored with each of its topics
MAX_ID_BYTES = 1024
_NULL = msgspec.Raw(b"null")


class InvalidJson(InvalidRequest):
    """The message is not JSON."""

    code = "invalid_json"


class Start(msgspec.Struct, frozen=True):
    """Where a subscription begins: after a seq, or at the end."""

    from_seq: Number = 0
    tail: bool = False


class Subscribe(msgspec.Struct, frozen=True, tag_field="op", tag="subscribe"):
    """A command to be sent the records of topics from now on. `request_id`, as in all commands, is what the answer repeats:
    any JSON value.
    """

    request_id: msgspec.Raw = _NULL
    topic: str | None = None
    topics: dict[str, Start] = {}
    from_seq: Number = 0
    tail: bool = False
    node: str | list[str] | None = None
    limit: Number = MAX_LIMIT
    max_batch_bytes: Number = PAGE_BYTES
    include_data: bool = True
    include_tags: bool = False
    include_meta: bool = True
    lenient: bool = False

    def starts(self) -> dict[str, Start]:
        """Returns where each of the topics begins. `topic` is one more of them, unless `topics` has it.

        Raises:
            InvalidRequest: there is none, or there are too many.
        """
        more = {} if self.topic is None else {self.topic: Start(self.from_seq, self.tail)}
        return _checked({**more, **self.topics})


class Unsubscribe(msgspec.Struct, frozen=True, tag_field="op", tag="unsubscribe"):
    """A command to be sent nothing more of topics."""

    request_id: msgspec.Raw = _NULL
    topic: str | None = None
    topics: list[str] = []

    def names(self) -> list[str]:
        """Returns the topics. Raises InvalidRequest if there is none, or too many."""
        more = [] if self.topic is None else [self.topic]
        return list(_checked(dict.fromkeys([*self.topics, *more])))


class Publish(WriteBody, frozen=True, tag_field="op", tag="publish", kw_only=True):
    """A command to append records."""

    topic: str
    request_id: msgspec.Raw = _NULL
    return_seqs: bool = True


class Ping(msgspec.Struct, frozen=True, tag_field="op", tag="ping"):
    """A command that is only answered: it keeps the socket open."""

    request_id: msgspec.Raw = _NULL


Command = Subscribe | Unsubscribe | Publish | Ping
_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


class _Identified(msgspec.Struct, frozen=True):
    request_id: msgspec.Raw = _NULL


_identified = msgspec.json.Decoder(_Identified)


def decode(text: bytes) -> Command:
    """Returns the command in a message.

    Raises:
        InvalidJson: the message is not strict JSON.
        InvalidRequest: it is no command.
    """
    try:
        requests.parsed(text)
    except (orjson.JSONDecodeError, RecursionError) as exc:
        raise InvalidJson(f"the message is not JSON: {exc}") from exc
    try:
        command = _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidRequest(f"the command is not valid: {exc}") from exc
    if len(command.request_id) > MAX_ID_BYTES:
        raise InvalidRequest(f"request_id is too long: limit={MAX_ID_BYTES} received={len(command.request_id)}")
    return command


def request_id_of(text: bytes) -> bytes:
    """Returns the request id of a message as JSON text; `null` if it has none that could be told, or too long a one."""
    try:
        requests.parsed(text)
        found = bytes(_identified.decode(text).request_id)
    except (orjson.JSONDecodeError, msgspec.DecodeError, RecursionError):
        return bytes(_NULL)
    return found if len(found) <= MAX_ID_BYTES else bytes(_NULL)


def _checked(named: dict[str, Any]) -> dict[str, Any]:
    if not named:
        raise InvalidRequest("topic or topics is required")
    if len(named) > MAX_TOPICS:
        raise InvalidRequest(f"too many topics: limit={MAX_TOPICS} received={len(named)}")
    return named
