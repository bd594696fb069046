"""Turns facts about feature tables into checks. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from cli.tables import age, counted
from operators.doctor.facts import Check, FeatureFacts
from operators.doctor.following_rules import others

LATE_FOLD_MS = 2 * 60_000  # an event waits seconds; the alarm `fold-lags` rings from a minute on
OPEN_REGISTRATION_MS = 3 * 60_000  # the relay's sweep ends one whose process died
STUCK_BUILD_MS = 6 * 3_600_000  # as the alarm `backfill-stuck`

_OPERATIONS = "docs/operations.md"


def features(facts: FeatureFacts) -> Iterator[Check]:
    """Yields the checks of lanes, registrations, and the jobs of feature tables."""
    yield _folding(facts)
    yield _registrations(facts)
    yield _jobs(facts)


def _folding(facts: FeatureFacts) -> Check:
    broken = next((lane for lane in facts.lanes if lane.error), None)
    if facts.logs_error or broken is not None:
        found = f"can't read {broken.name}: {broken.error}" if broken is not None else facts.logs_error
        return Check("folding", "fail", found, "`headrace verify` says what is damaged", f"{_OPERATIONS}#fold-lags")
    stopped = [lane for lane in facts.lanes if lane.stopped]
    if stopped:
        found = f"stopped in {stopped[0].name}: {'; '.join(stopped[0].stopped)}{others(stopped)}"
        advice = "register the table with another filter, or without the feature, and `force`"
        return Check("folding", "fail", found, advice, f"{_OPERATIONS}#table-stopped")
    late = sorted((lane for lane in facts.lanes if lane.waited_ms > LATE_FOLD_MS), key=lambda lane: -lane.waited_ms)
    if late:
        found = f"events of {late[0].name} wait for {age(late[0].waited_ms)} to get into rows{others(late)}"
        advice = "does the folder run? look at its log, its queue and its dead letters"
        return Check("folding", "fail", found, advice, f"{_OPERATIONS}#fold-lags")
    return Check("folding", "ok", f"{counted(len(facts.lanes), 'lane')} looked at, no event waits for long")


def _registrations(facts: FeatureFacts) -> Check:
    docs = f"{_OPERATIONS}#relay-lags"
    broken = next((registry for registry in facts.registries if registry.error), None)
    if broken is not None:
        found = f"can't read the registry of {broken.namespace}: {broken.error}"
        return Check("registrations", "fail", found, "`headrace verify` says what is damaged", docs)
    open_ = [registry for registry in facts.registries if (registry.open_ms or 0) > OPEN_REGISTRATION_MS]
    if open_:
        worst = max(open_, key=lambda registry: registry.open_ms or 0)
        found = f"not all lanes of {worst.namespace} have its registration, for {age(worst.open_ms)}{others(open_)}"
        advice = "register anything there again, which ends it; does the relay run?"
        return Check("registrations", "fail", found, advice, docs)
    return Check("registrations", "ok", f"{counted(len(facts.registries), 'namespace')} looked at, all have ended")


def _jobs(facts: FeatureFacts) -> Check:
    if facts.jobs_error:
        docs = f"{_OPERATIONS}#when-data-is-damaged"
        return Check("feature jobs", "fail", facts.jobs_error, "see the bucket above", docs)
    building = [
        (age_ms, f"{registry.namespace}/{table}")
        for registry in facts.registries
        for table, age_ms in registry.building_ms.items()
    ]
    stuck = [one for one in building if one[0] > STUCK_BUILD_MS]
    if stuck:
        age_ms, table = max(stuck)
        found = f"the back-fill of {table} is under way for {age(age_ms)}{others(stuck)}"
        advice = "look at its job and at *Fold lags*; a forced registration gives it up"
        return Check("feature jobs", "warn", found, advice, f"{_OPERATIONS}#back-fill-stuck")
    if facts.failed:
        last = facts.failed[-1]
        found = f"job {last.job_id} ({last.kind}) has failed within a day: {last.reason}{others(facts.failed)}"
        advice = "ask for it again once the cause is gone; read its driver's log"
        return Check("feature jobs", "warn", found, advice, f"{_OPERATIONS}#indexing")
    return Check(
        "feature jobs", "ok", f"{counted(len(building), 'back-fill')} under way, no job has failed within a day"
    )
