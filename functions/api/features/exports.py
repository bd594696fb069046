"""The routes that export or back-fill feature tables: they start jobs, and show what became of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import msgspec
from starlette.responses import Response

from functions.access import Scope
from functions.api.features.calls import Call, JobUnknown, convert, parse
from functions.api.features.registrations import failing_as
from headrace.errors import RequestTimeout
from headrace.features.errors import JobNotFound, TableNotFound
from headrace.features.exports import Plan, Request
from headrace.features.jobs import ASOF, FOLD, ExportResult, FoldResult
from headrace.features.rows import parse_as_of, write_as_of


class BackfillBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/backfill`, and what those of both exports have, too."""

    table: str
    dry_run: bool = False


class ExportBody(BackfillBody, frozen=True, kw_only=True):
    """What the bodies of both exports have."""

    features: list[str] = []
    backfill: bool = False


class SnapshotBody(ExportBody, frozen=True, kw_only=True):
    """The body of `/snapshot`."""

    as_of: str | None = None


class LabelsBody(ExportBody, frozen=True, kw_only=True):
    """The body of `/training-set`."""

    labels: str


async def snapshot(call: Call) -> Response:
    """Asks for the rows of a table, or says what that takes."""
    return await call.reply(_shown(await call.run(_snapshot, call, await call.read())))


async def training_set(call: Call) -> Response:
    """Asks for the features of labels, or says what that takes."""
    return await call.reply(_shown(await call.run(_training_set, call, await call.read())))


async def backfill(call: Call) -> Response:
    """Has a table computed from all events, or says what that takes."""
    return await call.reply(_shown(await call.run(_backfill, call, await call.read())))


async def show_job(call: Call) -> Response:
    """Shows what became of a job."""
    return await call.reply(await call.run(_show, call, call.part(1)))


def _snapshot(call: Call, data: bytes) -> Plan:
    body: SnapshotBody = convert(parse(data), SnapshotBody)
    as_of = parse_as_of(body.as_of) if body.as_of is not None else None
    asked = _request(call, body)
    with _starting(body):
        return call.context.exports().snapshot(asked, as_of, is_dry=body.dry_run)


def _training_set(call: Call, data: bytes) -> Plan:
    body: LabelsBody = convert(parse(data), LabelsBody)
    asked = _request(call, body)
    with _starting(body):
        return call.context.exports().training_set(asked, body.labels, is_dry=body.dry_run)


def _backfill(call: Call, data: bytes) -> Plan:
    body: BackfillBody = convert(parse(data), BackfillBody)
    check_scopes(call, body.table)
    with _starting(body):
        return call.context.exports().backfill(call.namespace, body.table, is_dry=body.dry_run)


def _starting(body: BackfillBody) -> AbstractContextManager[None]:
    return failing_as(RequestTimeout() if body.dry_run else JobUnknown())


def _request(call: Call, body: ExportBody) -> Request:
    check_scopes(call, body.table)
    return Request(call.namespace, body.table, body.features, body.backfill)


def check_scopes(call: Call, table: str) -> None:
    """Raises Forbidden if the key may not export a table: it must be allowed to change it, and to read what it comes
    from. Raises TableNotFound if there is none.
    """
    call.require(Scope.ADMIN, table)
    with failing_as(RequestTimeout()):
        view = call.features.registry(call.namespace)
    upstreams = {node.name: getattr(node, "upstreams", ()) for node in view.registry.nodes}
    if not view.has_table(table):
        raise TableNotFound(table)
    left = [table]
    while left:
        name = left.pop()
        call.require(Scope.READ, name)
        left += upstreams[name]


def _shown(plan: Plan) -> dict[str, Any]:
    one = plan.estimate
    return {
        **({"job_id": plan.job_id} if plan.job_id else {}),
        "as_of": write_as_of(plan.as_of),
        "first_offsets": plan.first_offsets,
        "segments": plan.segments,
        "events": one.events,
        "bytes": one.bytes,
        "estimate": {"seconds": one.seconds, "usd": one.usd},
    }


_KINDS = {ASOF: "training-set", FOLD: "backfill"}


def _show(call: Call, job_id: str) -> dict[str, Any]:
    call.grant.require(Scope.ADMIN)
    job = call.context.exports().show(call.namespace, job_id)
    if not call.may_touch(job.table):
        raise JobNotFound(job_id)
    status = job.status
    return {
        "job_id": job_id,
        "kind": _KINDS.get(status.kind, status.kind),
        "table": job.table,
        "state": status.state,
        "created_ms": status.created_ms,
        "started_ms": status.started_ms,
        "ended_ms": status.ended_ms,
        "done": status.done,
        "of": status.of,
        "reason": status.reason,
        "result": _result(call.context.settings.bucket, job.result) if job.result is not None else None,
    }


def _result(bucket: str, result: ExportResult | FoldResult) -> dict[str, Any]:
    lanes = result.counted.values()
    read = {
        "events": sum(lane.events for lane in lanes),
        "skipped": sum(lane.skipped for lane in lanes),
        "example": next((lane.example for lane in lanes if lane.example), ""),
    }
    if isinstance(result, FoldResult):
        return {"rows": sum(part.rows for part in result.parts), **read}
    return {
        "objects": [f"s3://{bucket}/{key}" for key in result.objects],
        "rows": result.rows,
        "unmatched": result.unmatched,
        **read,
        "view": result.view,
    }
