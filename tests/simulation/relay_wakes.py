"""The laws of subscriptions: of each write of their rows, and at rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from headrace.clock import Clock
from headrace.errors import Gone, NotFound
from headrace.streams.verbs import Streams
from headrace.subscriptions.values import KIND, Link, Subscription, Wake
from headrace.subscriptions.verbs import Ack, Claimed
from headrace.tables.parts import Part
from headrace.wal.state import decode_cursor
from tests.simulation.relay_world import HeardWal, Simulation

ONE_WAKE = "one wake of each generation, and one record of each announcement"
ONE_HOLDER = "a wake has one holder at most, until its lease ends or it lets go"


class SurveyedRows(dict[tuple[str, str, str], Part]):
    """The rows of sessions; the laws see each write."""

    def __init__(self, laws: WakeLaws) -> None:
        super().__init__()
        self._laws = laws

    def __setitem__(self, key: tuple[str, str, str], part: Part) -> None:
        before = self.get(key)
        super().__setitem__(key, part)
        self._laws.written(key, before, part)

    def __delitem__(self, key: tuple[str, str, str]) -> None:
        before = self[key]
        super().__delitem__(key)
        self._laws.written(key, before, None)


def _position(link: Link) -> int:
    return decode_cursor(link.acked_offset).position


class WakeLaws:
    """What may become of subscriptions."""

    def __init__(self, simulation: Simulation, wal: HeardWal, clock: Clock) -> None:
        self._simulation, self._wal, self._clock = simulation, wal, clock
        self._subs: dict[str, tuple[int, Subscription | None, Subscription]] = {}  # call of the write, before, after
        self._links: dict[tuple[str, str], Link] = {}
        self._gone: defaultdict[str, list[Link]] = defaultdict(list)  # links that changed logs since the newest wake
        self._announced: Counter[tuple[str, int]] = Counter()
        self._asked = set[tuple[str, int, str, str]]()  # acks that holders have asked for
        self._finished = set[tuple[str, int]]()  # wakes whose holders asked for their end
        self._held = set[tuple[str, int]]()
        self._since: dict[str, int] = {}  # from which call on a subscription is there
        self._named: dict[tuple[str, str], int] = {}  # and from which on it has a stream by name
        self._unnamed = set[tuple[str, str]]()

    # What clients were told.

    def created(self, sub: Subscription) -> None:
        """A client was told that there is a subscription."""
        self._since.setdefault(sub.id, self._simulation.calls)
        for path in sub.config.streams:
            if (sub.id, path) not in self._unnamed:
                self.named(sub.id, path)

    def forget(self, id_: str) -> None:
        """A client asks for the end of a subscription."""
        self._since.pop(id_, None)
        self._named = {key: call for key, call in self._named.items() if key[0] != id_}

    def deleted(self, id_: str) -> None:
        """It was told of that end."""
        self._unnamed = {key for key in self._unnamed if key[0] != id_}

    def named(self, id_: str, path: str) -> None:
        """A client was told that a stream is linked by name."""
        self._unnamed.discard((id_, path))
        self._named.setdefault((id_, path), self._simulation.calls)

    def unnamed(self, id_: str, path: str) -> None:
        """A client asks for the end of that."""
        self._unnamed.add((id_, path))
        self._named.pop((id_, path), None)

    def claimed(self, claimed: Claimed) -> None:
        """A worker was told that it holds a wake."""
        wake = (claimed.subscription.id, claimed.subscription.generation)
        self._simulation.note(ONE_HOLDER, wake not in self._held, wake)
        self._held.add(wake)

    def asked(self, claimed: Claimed, ack: Ack) -> None:
        """A worker asks for what only the holder of a wake may do."""
        id_ = claimed.subscription.id
        self._asked |= {(id_, ack.generation, path, offset) for path, offset in ack.acks}
        if ack.done:
            self._finished.add((id_, ack.generation))

    # What was written.

    def written(self, key: tuple[str, str, str], before: Part | None, after: Part | None) -> None:
        """A row of the table of sessions was written, or removed."""
        kind, id_, part = key
        if kind == KIND and part == "-" and after is not None:
            self._wrote(id_, msgspec.json.decode(after.data, type=Subscription))
        elif kind == KIND and part.startswith("link#"):
            was, link = (msgspec.json.decode(one.data, type=Link) if one else None for one in (before, after))
            self._linked(id_, was, link)

    def _wrote(self, id_: str, after: Subscription) -> None:
        note, calls = self._simulation.note, self._simulation.calls
        _, _, before = self._subs.get(id_, (0, None, None))
        self._subs[id_] = (calls, before, after)
        generation, ended = (before.generation, before.wake) if before is not None else (0, None)
        wake = after.wake
        if ended is not None and (wake is None or wake.id != ended.id) and not after.is_deleted:
            note(ONE_HOLDER, self._may_end(id_, generation, ended), id_, generation, ended)
        if ended is not None and wake is not None and wake.id == ended.id:
            self._announced[id_, generation] += wake.stage == "announced" and wake.attempts > ended.attempts
            holds = ended.stage != "leased" or (wake.stage, wake.holder) == ("leased", ended.holder)
            note(ONE_HOLDER, holds and after.generation == generation, id_, generation, ended, wake)
        elif wake is not None:
            note(ONE_WAKE, after.generation == generation + 1, id_, generation, after)
            note("a wake is opened for data", self._has_data(id_), id_, after)
            self._announced[id_, after.generation] += 1
            self._gone[id_].clear()
        else:
            note(ONE_WAKE, after.generation == generation, id_, generation, after)

    def _may_end(self, id_: str, generation: int, wake: Wake) -> bool:
        is_over = wake.until_ms <= self._clock.now_ms()
        return wake.stage != "leased" or is_over or (id_, generation) in self._finished

    def _has_data(self, id_: str) -> bool:
        links = [*self._gone[id_], *(link for (own, _), link in self._links.items() if own == id_)]
        newest = ((link, self._wal.newest(link.log_id)) for link in links if link.log_id)
        return any(entry is not None and entry.state.next_offset > _position(link) for link, entry in newest)

    def _linked(self, id_: str, before: Link | None, after: Link | None) -> None:
        note = self._simulation.note
        path = (after or before or Link("")).path
        if before is not None and (after is None or after.log_id != before.log_id):
            self._gone[id_].append(before)
        if after is None:
            self._links.pop((id_, path), None)
            return
        self._links[id_, path] = after
        if before is None or before.log_id != after.log_id:
            since = self._wanted(id_, path)
            if after.log_id and since is not None and self._wal.created[after.log_id] > since:
                note("all of a later stream is news", _position(after) == 0, id_, after)
        elif before.acked_offset != after.acked_offset:
            note("a cursor never goes back", _position(before) <= _position(after), id_, before, after)
            call, was, now = self._subs[id_]
            sub = was if call == self._simulation.calls else now
            is_held = sub is not None and sub.wake is not None and sub.wake.stage == "leased"
            asked = sub is not None and (id_, sub.generation, path, after.acked_offset) in self._asked
            note("a cursor moves as the holder of the wake says", is_held and asked, id_, sub, before, after)

    def _wanted(self, id_: str, path: str) -> int | None:
        """Returns since which call a subscription must have what is created under a name."""
        found = [self._named.get((id_, path))]
        if id_ in self._subs and self._subs[id_][2].config.matches(path):
            found.append(self._since.get(id_))
        return min((call for call in found if call is not None), default=None)

    # At rest.

    def at_rest(self, sub: Subscription, streams: Streams, paths: Iterable[str]) -> None:
        """All that is wanted is linked, and all that is pending is announced."""
        require = self._simulation.require
        for path in paths:
            try:
                head = streams.head(path)
            except (NotFound, Gone):
                continue
            is_wanted = sub.config.matches(path) or (sub.id, path) in self._named
            link, end = self._links.get((sub.id, path)), head.state.next_offset
            if is_wanted and end:
                is_linked = link is not None and link.log_id == head.log_id
                require("what is wanted is linked", is_linked, sub.id, path, link, head.log_id)
            if link is not None and link.log_id == head.log_id and end > _position(link):
                law = "nothing pending stays unannounced"
                require(law, sub.wake is not None and sub.wake.stage == "announced", sub, link, end)

    def announced(self, records: Sequence[Any]) -> None:
        """The wake stream has a record of each announcement."""
        found = [msgspec.json.decode(record) for record in records]
        told = Counter((one["subscription_id"], one["generation"]) for one in found)
        self._simulation.require(ONE_WAKE, told == +self._announced, told, self._announced)
