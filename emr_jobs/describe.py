"""What the descriptor of a run says, from what workers reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from emr_jobs.extract import Counts, FieldCounts
from emr_jobs.reports import Columns, Counted, Distinct, Report, Written
from headrace.errors import Damaged
from headrace.index.descriptors import VERSION, Descriptor, Family, FieldStats, Part
from headrace.index.job import Task
from headrace.index.plan import Plan

N = TypeVar("N", int, float)


def descriptor(
    task: Task,
    plan: Plan | None,
    times: tuple[int, int],
    known: Sequence[Counts],
    found: Sequence[Report],
    created_ms: int,
) -> Descriptor:
    """The descriptor of a task's run.

    Args:
        times: append times of the first and the last record.
        known: counts of its records, of a compaction; else they are among the reports.
        found: all reports of the task.

    Raises:
        Damaged: other records were read than the task is about.
    """
    counts = [*known, *(report.counts for report in found if isinstance(report, Counted))]
    records = sum(one.records for one in counts)
    if records != task.end_offset - task.first_offset:
        expected = task.end_offset - task.first_offset
        raise Damaged(f"run has other records: run={task.run_id} expected={expected} found={records}")
    columns = {name for report in found if isinstance(report, Columns) for name in report.fields}
    distinct: dict[str, int] = {}
    for report in found:
        if isinstance(report, Distinct):
            for name, count in report.fields.items():
                distinct[name] = distinct.get(name, 0) + count
    names = [field.name for field in plan.fields] if plan else []
    return Descriptor(
        version=VERSION,
        log_id=task.log_id,
        run_id=task.run_id,
        level=task.level,
        plan=task.plan,
        first_offset=task.first_offset,
        end_offset=task.end_offset,
        min_time_ms=times[0],
        max_time_ms=times[1],
        least_timestamp=_least(one.least_timestamp for one in counts),
        greatest_timestamp=_greatest(one.greatest_timestamp for one in counts),
        schema_version=plan.schema_version if plan else 0,
        inputs=tuple(run.id for run in task.inputs),
        parts={family: _parts(family, found) for family in (plan.families if plan else ("lex",))},
        fields={
            name: _stats(
                [one.fields[name] for one in counts if name in one.fields], distinct.get(name, 0), name in columns
            )
            for name in names
        },
        rollups=tuple(plan.rollups) if plan else (),
        created_ms=created_ms,
    )


def _parts(family: Family, found: Iterable[Report]) -> tuple[Part, ...]:
    written = [report for report in found if isinstance(report, Written) and report.family == family]
    return tuple(one.part for one in sorted(written, key=lambda one: (one.bucket_number, one.number)))


def _stats(counts: Sequence[FieldCounts], distinct: int, is_column: bool) -> FieldStats:
    return FieldStats(
        present=sum(one.present for one in counts),
        distinct=distinct,
        lossy=sum(one.lossy for one in counts),
        column=is_column,
        least=_least(one.least for one in counts) if is_column else None,
        greatest=_greatest(one.greatest for one in counts) if is_column else None,
    )


def _least(numbers: Iterable[N | None]) -> N | None:
    return min((number for number in numbers if number is not None), default=None)


def _greatest(numbers: Iterable[N | None]) -> N | None:
    return max((number for number in numbers if number is not None), default=None)
