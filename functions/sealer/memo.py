"""What the sealer keeps of a log from one run to the next, as a note beside the log: which message goes on with unfinished
or failed work, and how far the orphan sweep came. Losing it loses no work: the audit finds that again.

One message to go on: a verb that is not finished, or failed, is asked for again by one message, numbered by the note. A
message is followed by the next only if no newer one is on its way, so that repeats of a message, events of a busy log and
schedules never multiply: chains that began apart become one at the next link. The next message is sent before the note
says so, since a crash in between only sends it twice. One that seems lost (`_LOST_MS`) is replaced by the next that
fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from functions.queue import Message
from headrace.tables.watermarks import SEALER_NOTE

if TYPE_CHECKING:
    from functions.sealer.context import Context

_LOST_MS = 3600_000  # longer than a message waits in a queue that has a backlog
_FIRST_RETRY_MS = 15_000
_LAST_RETRY_MS = 900_000  # the longest delay of SQS; the alarm of a poisoned log lasts longer
_TRIES = 4


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """The newest message that goes on with a verb: its number, and when it counts as lost, in epoch milliseconds."""

    number: int
    lost_ms: int


class Memo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note of a log.

    Attributes:
        turns: the newest message to go on, by verb.
        older_slot, newer_slot: the slots that were next at the last orphan sweep but one, and at the last.
        noted_ms: when `newer_slot` was noted, in epoch milliseconds.
        swept: the key of the last payload that an unfinished orphan sweep looked at.
    """

    turns: dict[str, Turn] = {}
    older_slot: int = 0
    newer_slot: int = 0
    noted_ms: int = 0
    swept: str = ""


_decoder = msgspec.json.Decoder(Memo)
_encode = msgspec.json.Encoder().encode


def read(parts: Context, log_id: str) -> tuple[Memo, bytes | None]:
    """Returns the memo of a log, and its bytes as they are stored; an empty memo, and None, if there is none."""
    data = parts.stores.watermarks.note(log_id, SEALER_NOTE)
    return (_decoder.decode(data) if data is not None else Memo()), data


def change(parts: Context, log_id: str, edit: Callable[[Memo], Memo]) -> None:
    """Replaces the memo of a log by the result of `edit`, which may be called again if another process changes the memo
    meanwhile. Removes an empty memo. After a few tries it gives up: see above for what a lost memo costs.
    """
    watermarks = parts.stores.watermarks
    for _ in range(_TRIES):
        memo, data = read(parts, log_id)
        edited = edit(memo)
        if edited == memo:
            return
        if edited == Memo():
            watermarks.drop_note(log_id, SEALER_NOTE)
            return
        if watermarks.set_note(log_id, _encode(edited), data, SEALER_NOTE):
            return


def go_on(parts: Context, message: Message, *, not_before_ms: int = 0) -> bool:
    """Sends a message to go on with the work of `message`, unless one is on its way. Returns whether it sent one.

    Args:
        not_before_ms: the earliest time to go on; by default at once.
    """
    now_ms = parts.now_ms()
    memo, _ = read(parts, message.log_id)
    newest = memo.turns.get(message.verb)
    if newest is not None and message.turn < newest.number and now_ms < newest.lost_ms:
        return False
    number = max(message.turn, newest.number if newest is not None else 0) + 1
    following = msgspec.structs.replace(message, turn=number, not_before_ms=not_before_ms)
    parts.queue.send([following], now_ms)
    turn = Turn(number, max(now_ms, not_before_ms) + _LOST_MS)

    def edit(memo: Memo) -> Memo:
        newest = memo.turns.get(message.verb)
        if newest is not None and newest.number >= number:
            return memo
        return msgspec.structs.replace(memo, turns={**memo.turns, message.verb: turn})

    change(parts, message.log_id, edit)
    return True


def try_again(parts: Context, message: Message) -> bool:
    """Sends a message to try `message` again, which failed, after 15 s, and after twice as long each time, up to 15
    minutes; unless one is on its way. Returns whether it sent one.
    """
    pause_ms = min(_LAST_RETRY_MS, _FIRST_RETRY_MS << min(message.turn, 10))
    return go_on(parts, message, not_before_ms=parts.now_ms() + pause_ms)


def finish(parts: Context, message: Message) -> None:
    """Forgets the messages that went on with the work of `message`, since it is done."""
    if not message.turn:
        return

    def edit(memo: Memo) -> Memo:
        newest = memo.turns.get(message.verb)
        if newest is None or newest.number > message.turn:
            return memo
        turns = {verb: turn for verb, turn in memo.turns.items() if verb != message.verb}
        return msgspec.structs.replace(memo, turns=turns)

    change(parts, message.log_id, edit)
