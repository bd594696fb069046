"""What the sealer keeps of a log from one run to the next, as a note beside the log: which message goes on with unfinished
or failed work, and how far the orphan sweep came. Losing it loses no work: the audit finds that again.

One message to go on: a verb that is not finished, or failed, is asked for again by one message, numbered by the note. A
message is followed by the next only if no newer one is on its way, so that repeats of a message, events of a busy log and
schedules never multiply: chains that began apart become one at the next link. Otherwise the note says that work was left
to the newer one: it may have looked already, and is then followed by one more when it finishes. The next message is sent
before the note says so, since a crash in between only sends it twice. One that seems lost (`_LOST_MS`) is replaced by the
next that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from functions.queue import Message
from headrace.tables.watermarks import SEALER_NOTE

if TYPE_CHECKING:
    from functions.sealer.context import Context

RUN_MS = 15_000  # of a run that can go on: ten, one after another, end within the function's 300 s
_LOST_MS = 3600_000  # longer than a message waits in a queue that has a backlog
_FIRST_RETRY_MS = 15_000
_LAST_RETRY_MS = 900_000  # the longest delay of SQS; the alarm of a poisoned log lasts longer
_TRIES = 4


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """The newest message that goes on with a verb.

    Attributes:
        number: counts these messages.
        lost_ms: when it counts as lost, in epoch milliseconds.
        failures: how many tries in a row have failed.
        again: whether other work was left to it, perhaps after it had looked: it must be followed by one more.
        force: whether that other work was asked for with `force`.
    """

    number: int
    lost_ms: int
    failures: int = 0
    again: bool = False
    force: bool = False


class Memo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note of a log.

    Attributes:
        turns: the newest message to go on, by verb.
        older_slot, newer_slot: the slots that were next at the last orphan sweep but one, and at the last.
        noted_ms: when `newer_slot` was noted, in epoch milliseconds.
        swept: the key of the last payload that an unfinished orphan sweep looked at.
        swept_object: likewise, of the surface's own objects.
    """

    turns: dict[str, Turn] = {}
    older_slot: int = 0
    newer_slot: int = 0
    noted_ms: int = 0
    swept: str = ""
    swept_object: str = ""


_decoder = msgspec.json.Decoder(Memo)
_encode = msgspec.json.Encoder().encode


def read(parts: Context, log_id: str) -> tuple[Memo, bytes | None]:
    """Returns the memo of a log, and its bytes as they are stored; an empty memo, and None, if there is none."""
    data = parts.stores.watermarks.note(log_id, SEALER_NOTE)
    return (_decoder.decode(data) if data is not None else Memo()), data


def change(parts: Context, log_id: str, edit: Callable[[Memo], Memo]) -> bool:
    """Replaces the memo of a log by the result of `edit`, which may be called again if another process changes the memo
    meanwhile. Removes an empty memo. After a few tries it gives up, and returns False: see above for what a lost memo
    costs.
    """
    watermarks = parts.stores.watermarks
    for _ in range(_TRIES):
        memo, data = read(parts, log_id)
        edited = edit(memo)
        if edited == memo:
            return True
        if edited == Memo():
            if watermarks.drop_note(log_id, SEALER_NOTE, data):
                return True
        elif watermarks.set_note(log_id, _encode(edited), data, SEALER_NOTE):
            return True
    return False


def go_on(parts: Context, message: Message, *, not_before_ms: int = 0, has_failed: bool = False) -> bool:
    """Sends a message to go on with the work of `message`. If one is on its way, leaves the work to it instead. Returns
    whether it sent one.

    Args:
        not_before_ms: the earliest time to go on; by default at once.
        has_failed: the work failed: it goes on after 15 s, and after twice as long each time, up to 15 minutes.
    """
    now_ms = parts.now_ms()
    newest: Turn | None = None

    def leave(memo: Memo) -> Memo:
        nonlocal newest
        newest = memo.turns.get(message.verb)
        if newest is None or newest.number <= message.turn or now_ms >= newest.lost_ms:
            return memo
        left = msgspec.structs.replace(newest, again=True, force=newest.force or message.force)
        return msgspec.structs.replace(memo, turns={**memo.turns, message.verb: left})

    is_left = change(parts, message.log_id, leave)
    if is_left and newest is not None and newest.number > message.turn and now_ms < newest.lost_ms:
        return False
    failures = (newest.failures if newest is not None else 0) + 1 if has_failed else 0
    if has_failed:
        not_before_ms = now_ms + min(_LAST_RETRY_MS, _FIRST_RETRY_MS << min(failures - 1, 10))
    number = max(message.turn, newest.number if newest is not None else 0) + 1
    force = message.force or (newest is not None and newest.force)
    following = msgspec.structs.replace(message, turn=number, not_before_ms=not_before_ms, force=force)
    parts.queue.send([following], now_ms)
    turn = Turn(number, max(now_ms, not_before_ms) + _LOST_MS, failures)

    def note(memo: Memo) -> Memo:
        known = memo.turns.get(message.verb)
        if known is not None and known.number >= number:
            return memo
        return msgspec.structs.replace(memo, turns={**memo.turns, message.verb: turn})

    change(parts, message.log_id, note)
    return True


def finish(parts: Context, message: Message) -> None:
    """Forgets the messages that went on with the work of `message`, since it is done; but goes on if work was left to
    them meanwhile.
    """
    if not message.turn:
        return
    is_left = False

    def forget(memo: Memo) -> Memo:
        nonlocal is_left
        newest = memo.turns.get(message.verb)
        is_left = newest is not None and newest.number == message.turn and newest.again
        if newest is None or newest.number > message.turn or is_left:
            return memo
        turns = {verb: turn for verb, turn in memo.turns.items() if verb != message.verb}
        return msgspec.structs.replace(memo, turns=turns)

    change(parts, message.log_id, forget)
    if is_left:
        go_on(parts, message)
