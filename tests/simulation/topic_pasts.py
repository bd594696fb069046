"""What the model of topics and queues remembers of every entry, so that it can go back with the tables.

The two logs of a queue go back apart. What the lease log says of jobs that the jobs log has lost is about other jobs from
then on; and a dead job may have left only one of its queue and the dead-letter topic.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from headrace.topics.values import LEASES, TOPICS, topic_of
from tests.simulation.queues import LeaseLog

if TYPE_CHECKING:
    from tests.simulation.log_model import LogModel
    from tests.simulation.topics import TopicLog
    from tests.simulation.world import World

Known = TypeVar("Known", "TopicLog", LeaseLog)


def remember(log: LogModel) -> None:
    """Keeps what is known of a topic or a lease log after its newest entry."""
    if log.config.role != LEASES:
        log.pasts.append(_copied(log.topic))
    else:
        log.pasts.append(_copied(log.queue) if log.queue is not None else None)


def go_back(world: World, log: LogModel, index: int) -> None:
    """Makes a log what it was after the entry with this index; keys that the table has lost are free."""
    if log.config.surface != TOPICS:
        return
    log.pasts = log.pasts[: index + 1]
    past = log.pasts[-1]
    if log.config.role == LEASES:
        log.queue = _copied(past) if isinstance(past, LeaseLog) else None
        return
    assert past is not None and not isinstance(past, LeaseLog), "it is a topic's"
    log.topic = _copied(past)
    rows = world.raw["producers"].keys
    log.topic.keys = {
        key: one for key, one in log.topic.keys.items() if (log.log_id, sha256(key.encode()).hexdigest()) in rows
    }


def join_again(world: World) -> None:
    """Lets every queue have the lease log that is left, without what that says of lost jobs; and every dead job be in its
    queue again unless both logs know of it.
    """
    model, queues = world.model, world.model.topics.queues
    for log in model.logs.values():
        for companion in log.config.companions if log.config.surface == TOPICS else ():
            leases = model.logs.get(companion.log_id)
            queue = leases.queue if leases is not None and leases.queue is not None else LeaseLog(log)
            if leases is not None:
                leases.queue = queue
            queue.jobs, log.topic.leases = log, queue
            queue.lose()
            told = topic_of(log.tip.state).evict_floor
            for offset in range(log.tip.state.floor):  # done, even if nobody knows of that ack any more
                log.topic.gone.setdefault(offset, ("lost" if offset < told else "done", log.steps[-1]))

    def last_step(log_id: str) -> int:
        return model.logs[log_id].steps[-1] if log_id in model.logs else -1

    def is_left(job: tuple[str, int]) -> bool:
        return job[0] in model.logs and job[1] < model.logs[job[0]].now.next_offset

    def leases_of(job: tuple[str, int]) -> str:
        return next(one.log_id for one in model.logs[job[0]].config.companions)

    buried = {job: at for job, at in queues.buried_jobs.items() if is_left(job) and at <= last_step(leases_of(job))}
    arrived = {job: one for job, one in queues.arrived.items() if is_left(job) and one.step <= last_step(one.log_id)}
    queues.buried_jobs = {job: at for job, at in buried.items() if job in arrived}
    queues.arrived = {job: one for job, one in arrived.items() if job in buried}


def _copied(one: Known) -> Known:
    """Returns what is known with lists and tables of its own."""
    own = {name: copy(value) for name, value in vars(one).items() if isinstance(value, (dict, list))}
    return replace(one, **own)
