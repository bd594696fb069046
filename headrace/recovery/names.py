"""Decides which log currently owns each name, and which logs must have ended, from the facts of all logs. Does no I/O.

A name is created again only after its log has ended and no fork needs it, with a higher incarnation. So of all logs of
a name, the one with the highest incarnation owns it, whatever the manifests of the others say; that reveals an end
whose entry was lost. In the same way, a log was purged only after each of its forks had ended. If a name was used again
after the tables were lost and before a recovery, its youngest log owns it, and a log that may not have ended is left
alone.

This is decided for main logs. Companions follow their main log. If one log of a name has ended, all have, because they
end in one commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from headrace.recovery.survey import Facts

_SKEW_MS = 60_000  # servers' clocks differ less
Standing = Literal["has the name", "superseded", "name is taken", "main log is unknown"]


class Names(NamedTuple):
    """The decision about all logs, by log id.

    Attributes:
        forks: number of logs that hold this log as their source.
        ended_with_others: logs that must have ended, because a source or another log of the name has.
        holding: purged logs whose restored entries are older than the release of their source; their purge releases it
            again.
    """

    standing: dict[str, Standing]
    forks: Counter[str]
    ended_with_others: set[str]
    holding: set[str]


def resolve(logs: Sequence[Facts]) -> Names:
    """Returns for every log whose configuration is known whether it owns its name, and which logs must have ended."""
    known = [log for log in logs if log.config is not None]
    standing: dict[str, Standing] = {}
    mains = sorted((log for log in known if not _role(log)), key=name_of)
    for _, group in groupby(mains, name_of):
        standing |= _judge(list(group))
    for log in known:
        if log.config is not None and log.config.role:
            standing[log.log_id] = standing.get(log.config.main, "main log is unknown")
    by_id = {log.log_id: log for log in known}
    gone = {log.log_id for log in known if log.tombstone is not None}
    ended: set[str] = set()
    for log in known:
        source = _source(log)
        while source is not None and source not in gone:
            source = _source(by_id[source]) if source in by_id else None
        if source is not None and log.log_id not in gone:
            ended.add(log.log_id)
    for main in mains:
        ended |= _ended_with_name(main, by_id)
    forks: Counter[str] = Counter()
    holding: set[str] = set()
    for log in known:
        source = _source(log)
        if source not in by_id or standing[source] == "superseded":
            continue
        holds = log.state is None or log.state.holds_source
        if log.log_id in gone and log.newest is not None and holds and source not in gone:
            holding.add(log.log_id)
            forks[source] += 1
        elif holds and log.log_id not in gone | ended and standing[log.log_id] != "superseded":
            forks[source] += 1
    return Names(standing, forks, ended, holding)


def _ended_with_name(main: Facts, by_id: Mapping[str, Facts]) -> set[str]:
    """Returns those logs of a name that do not say that they have ended, although another log of the name does."""
    companions = main.config.companions if main.config is not None else ()
    logs = [main, *(by_id[one.log_id] for one in companions if one.log_id in by_id)]
    over = {log.log_id for log in logs if log.tombstone is not None or (log.state is not None and log.state.ended)}
    return {log.log_id for log in logs} - over if over else set()


def _judge(logs: list[Facts]) -> dict[str, Standing]:
    """Returns for each log of one name whether it owns the name and, if not, why."""
    top = max(logs, key=lambda log: (log.incarnation, log.own_row is not None, _created_ms(log)))
    youngest = max(logs, key=_created_ms)
    if _created_ms(youngest) > _created_ms(top) + _SKEW_MS:
        top = youngest  # made while the name's past was forgotten: its incarnation says nothing
    return {log.log_id: _against(top, log) for log in logs}


def _against(top: Facts, log: Facts) -> Standing:
    if log is top:
        return "has the name"
    has_ended = log.tombstone is not None or (log.state is not None and bool(log.state.ended))
    return "superseded" if has_ended or log.incarnation < top.incarnation else "name is taken"


def _role(log: Facts) -> str:
    return log.config.role if log.config is not None else ""


def name_of(log: Facts) -> tuple[str, str]:
    """Returns the surface and the name of a log; empty ones if nothing tells which log it is."""
    return (log.config.surface, log.config.name) if log.config is not None else ("", "")


def _created_ms(log: Facts) -> int:
    return log.config.created_ms if log.config is not None else 0


def _source(log: Facts) -> str | None:
    return log.config.source.log_id if log.config is not None and log.config.source is not None else None
