"""The template's alarms over metrics of an emulator in time-lapse: each fault raises its own and no other."""

from __future__ import annotations

import pytest

from functions.metrics import DIMENSION, NAMESPACE, STACK_DIMENSION
from local.cloudwatch.queries import alarms_of, states
from local.cloudwatch.samples import Key, Samples
from local.template import read_template
from tests.observability.captures import STACK
from tests.observability.conftest import Staged
from tests.observability.stages import FAULTS

# What FILL makes of a metric without any value is not documented: alarms must not depend on it.
FILLS_EMPTY = pytest.mark.parametrize("fills_empty", [True, False], ids=["fill", "no-fill"])


@FILLS_EMPTY
def test_nothing_fires_while_all_is_well(staged: Staged, fills_empty: bool) -> None:
    assert staged("healthy").fired(fills_empty=fills_empty) == {}


@FILLS_EMPTY
@pytest.mark.parametrize("alarm", FAULTS)
def test_a_fault_raises_its_own_alarm_and_no_other(staged: Staged, alarm: str, fills_empty: bool) -> None:
    assert set(staged(alarm).fired(fills_empty=fills_empty)) == {alarm}


MINUTE_MS = 60_000


# The thresholds, which no stage is near: values as the meter writes them, the same in each of three periods.
@FILLS_EMPTY
@pytest.mark.parametrize(
    ("service", "written", "fired"),
    [
        ("api", {"JobsClaimed": 500, "JobsRedelivered": 100, "JobWaitMs": 5 * MINUTE_MS, "TopicAppends": 500}, set()),
        ("api", {"JobsClaimed": 10, "JobsRedelivered": 10}, set()),  # too few to say anything
        ("api", {"JobsClaimed": 500, "JobsRedelivered": 400}, {"leases-churn"}),
        ("api", {"JobsClaimed": 500, "JobsRedelivered": 0, "JobWaitMs": 40 * MINUTE_MS}, {"jobs-wait"}),
        ("api", {"DeadLetters": 1}, {"jobs-given-up"}),
        ("api", {"TopicAppends": 1, "StreamEvents": 0}, {"stream-unheard-topics"}),
        ("relay", {"RelayLagMs": 50_000, "Visits": 500, "VisitFailures": 15}, set()),  # under load, single failures
        ("relay", {"RelayLagMs": 70_000}, {"relay-lags"}),
        ("relay", {"Visits": 500, "VisitFailures": 25}, {"visits-fail"}),
        ("relay", {"Webhooks": 500, "WebhooksFailed": 100, "WebhookAgeMs": 5 * MINUTE_MS}, set()),
        ("relay", {"Webhooks": 2, "WebhooksFailed": 2}, set()),  # too few to say anything
        ("relay", {"Webhooks": 500, "WebhooksFailed": 400}, {"webhooks-fail"}),
        ("relay", {"Webhooks": 2, "WebhooksFailed": 2, "WebhookAgeMs": 40 * MINUTE_MS}, {"webhooks-late"}),
        ("folder", {"FoldLagMs": 50_000, "PassesOvertaken": 50, "PassFailures": 50}, set()),
        ("folder", {"FoldLagMs": 70_000}, {"fold-lags"}),
        ("folder", {"TablesStopped": 1}, {"table-stopped"}),
        ("folder", {"PoisonedLogs": 1}, {"log-poisoned-folder"}),
        ("relay", {"BackfillAgeMs": 350 * MINUTE_MS}, set()),
        ("relay", {"BackfillAgeMs": 370 * MINUTE_MS}, {"backfill-stuck"}),
    ],
)
def test_thresholds(service: str, written: dict[str, float], fired: set[str], fills_empty: bool) -> None:
    samples = Samples()
    for name, value in {"Sweeps": 5, "StreamEvents": 9, **written}.items():
        of = "sealer" if name in ("Sweeps", "StreamEvents") else service
        key = Key(NAMESPACE, name, ((DIMENSION, of), (STACK_DIMENSION, STACK)))
        for period in range(3):
            samples.add(key, period * 300 + 10, value)
    alarms = [alarm for alarm in alarms_of(read_template(), STACK) if alarm.missing != "breaching"]
    found = {
        alarm.name
        for alarm in alarms
        for _, now in states(alarm, samples, 0, 900, fills_empty=fills_empty)
        if now == "ALARM"
    }
    assert found == fired


SIGNS = {"sealer": "Sweeps", "indexer": "Ticks", "relay": "Sweeps"}


@FILLS_EMPTY
@pytest.mark.parametrize("silent", SIGNS)
def test_a_worker_without_a_sign_of_life_for_three_periods_is_told_of(silent: str, fills_empty: bool) -> None:
    """The others are no excuse, and a sign in one of three periods is enough."""
    found = {}
    for periods in (2, 3):
        samples = Samples()
        for service, name in SIGNS.items():
            key = Key(NAMESPACE, name, ((DIMENSION, service), (STACK_DIMENSION, STACK)))
            for period in range(6):
                if service != silent or not 3 <= period < 3 + periods:
                    samples.add(key, period * 300 + 10, 5)
        found[periods] = {
            alarm.name
            for alarm in alarms_of(read_template(), STACK)
            if alarm.missing == "breaching"
            for _, now in states(alarm, samples, 0, 1800, fills_empty=fills_empty)
            if now == "ALARM"
        }
    assert found == {2: set(), 3: {f"{silent}-silent"}}
