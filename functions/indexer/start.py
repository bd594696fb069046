"""The verb start: gathers the due work of many logs and starts one job run for it, if a place for a job run is free.

The steps, and what a crash after each leaves:

    place taken (planning)   a place that the next look at job runs frees, after the longest run of this function
    input written            the same; an object that says what was planned
    rows claimed             the same; rows that name the job, which are freed with the place
    place moved (starting)   a job that the next look at job runs starts
    run started              the same: the client token is the job's id, so that the same run is found
    place moved (running)    nothing

Two planners never hold one place. A planner that was frozen while its place was freed notices that before it starts
anything, because moving the place is conditional on holding it.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from functions.indexer import policy
from functions.indexer.context import Context
from functions.indexer.look import see, wake
from functions.indexer.retire import retire, retire_passed
from functions.indexer.runs import TIMEOUT_MINUTES, put_input
from headrace.errors import StoreError
from headrace.index.job import VERSION, JobInput, Task
from headrace.tables.jobs import Place, Waiting

MAX_TASKS = 200
MAX_SEGMENTS = 512  # 8 GiB of payload: a run of minutes, not of hours
GIVE_UP_MS = (TIMEOUT_MINUTES + 30) * 60_000  # then a job that was not heard of again has no claim on its logs
_ROWS = 200
_ROUNDS = 10


class Started(NamedTuple):
    """The result of one call of `start`: the numbers of started job runs, of their tasks, and of the logs that these
    are for.

    Attributes:
        failed: logs that could not be looked at, each with the error.
        waited_ms: the longest time that any of the logs had waited; 0 if none was started.
    """

    jobs: int = 0
    tasks: int = 0
    logs: int = 0
    failed: tuple[tuple[str, Exception], ...] = ()
    waited_ms: int = 0


def start(context: Context) -> Started:
    """Starts a job run in each free place (there are as many as job runs may be active) while there is due work."""
    done = Started()
    for number in range(context.limits.jobs):
        if context.jobs.place(number) is not None or not context.jobs.due(context.now_ms(), limit=1):
            continue
        job_id = context.new_id()
        place = Place(number, job_id, "planning", context.now_ms())
        if not context.jobs.take(place):
            continue
        started = _start_in(context, place)
        done = Started(
            done.jobs + started.jobs,
            done.tasks + started.tasks,
            done.logs + started.logs,
            done.failed + started.failed,
            max(done.waited_ms, started.waited_ms),
        )
    return done


def launch(context: Context, place: Place) -> bool:
    """Starts the run of a job whose input exists, or finds it if it was started before, and notes it in the place.
    Returns False if the place belongs to another job by now.
    """
    run_id = context.runs.start(place.job_id)
    return context.jobs.move(replace(place, phase="running", since_ms=context.now_ms(), run_id=run_id))


def free_rows(context: Context, job: JobInput) -> None:
    """Makes the rows of logs that a job had claimed, but did not work on, due now and free for other jobs."""
    for log_id in {task.log_id for task in job.tasks}:
        row = context.jobs.get(log_id)
        if row is not None and row.job_id == job.job_id:
            context.jobs.put(replace(row, job_id="", due_ms=context.now_ms()))


def _start_in(context: Context, place: Place) -> Started:
    gathered = _Gathered(context)
    try:
        gathered.gather()
        if not gathered.tasks:
            context.jobs.release(place)
            return Started(failed=tuple(gathered.failed))
        job = JobInput(VERSION, place.job_id, context.now_ms(), tuple(gathered.tasks))
        put_input(context.stores.objects, job)
    except Exception:
        context.jobs.release(place)
        raise
    claimed = [_claim(context, row, place.job_id) for row in gathered.rows]
    if not any(claimed) or not context.jobs.move(replace(place, phase="starting", since_ms=context.now_ms())):
        free_rows(context, job)
        context.jobs.release(place)
        return Started(failed=tuple(gathered.failed))
    launch(context, place)
    waited_ms = max((context.now_ms() - row.since_ms for row in gathered.rows if row.since_ms), default=0)
    return Started(1, len(gathered.tasks), len(gathered.rows), tuple(gathered.failed), waited_ms)


def _claim(context: Context, row: Waiting, job_id: str) -> bool:
    """Writes in a log's row that a job works on it. Returns False if the row was changed meanwhile; the log's tasks
    then run anyway if the job claimed any other row, and a second result is refused.
    """
    claimed = replace(row, job_id=job_id, due_ms=context.now_ms() + GIVE_UP_MS, since_ms=0)
    return context.jobs.put(claimed) is not None


class _Gathered:
    """A collection of tasks of due logs, up to the size of one job run."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.tasks: list[Task] = []
        self.rows: list[Waiting] = []
        self.failed: list[tuple[str, Exception]] = []
        self._segments = 0

    def gather(self) -> None:
        """Adds the tasks of due logs, until there is enough for one job run, or no log is left."""
        seen: set[str] = set()
        for _ in range(_ROUNDS):
            due = self._context.jobs.due(self._context.now_ms(), limit=_ROWS)
            rows = [row for row in due if row.log_id not in seen]
            if not rows or self.tasks:
                return
            for row in policy.together(rows):
                seen.add(row.log_id)
                if len(self.tasks) >= MAX_TASKS or self._segments >= MAX_SEGMENTS:
                    return
                self._add(row)

    def _add(self, row: Waiting) -> None:
        try:
            tasks = self._tasks_of(row)
        except StoreError as exc:  # the row stays due
            self.failed.append((row.log_id, exc))
            return
        except Exception as exc:  # noqa: BLE001 - one poisoned log must not hold up the others
            self.failed.append((row.log_id, exc))
            self._context.jobs.put(policy.failed(row, self._context.now_ms(), str(exc), damaged=True))
            return
        if tasks:
            self.tasks += tasks
            self.rows.append(row)
            self._segments += sum(len(task.segments) for task in tasks)

    def _tasks_of(self, row: Waiting) -> list[Task]:
        """Returns the due tasks of a log. If there are none, updates its row with the next time, or drops the row."""
        context = self._context
        began = context.look()
        picture = see(context, row.log_id)
        if picture is None:
            context.jobs.drop(row)
            return []
        picture = picture._replace(manifest=retire(context, picture.manifest, began))
        if retire_passed(context, picture, began):
            picture = see(context, row.log_id) or picture
        now_ms = context.now_ms()
        tasks = policy.tasks(picture, row.since_ms, now_ms, context.limits, context.new_id)
        if tasks:
            return tasks
        due_ms = policy.next_look_ms(picture, row.since_ms, now_ms, context.limits)
        if due_ms is None:
            context.jobs.drop(row)
        else:
            since_ms = (row.since_ms or now_ms) if picture.unindexed else 0
            settled = Waiting(row.log_id, max(due_ms, now_ms + 1), since_ms, version=row.version)
            if context.jobs.put(settled) is not None:
                wake(context, settled.due_ms)
        return []
