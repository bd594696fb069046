"""The bill: nothing is paid twice or forgotten, prices are taken as given, and comparisons find where lines cross."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions.api.topics import watch
from headrace.settings import Settings
from infra.environments import PROD
from operators.cost import show, units
from operators.cost.charges import Estimate
from operators.cost.counts import counted
from operators.cost.model import bill, jobs
from operators.cost.prices import BadPrices, Ledger, Prices, parse, standard
from operators.cost.workload import DAYS, SECONDS, Assumptions, Workload
from tests.cost import deployed_template
from tests.cost.page import PAGE
from tests.infra.synths import synthesize

WORKLOADS = st.builds(
    Workload,
    appends=st.floats(1, 1e9),
    record_bytes=st.integers(1, 20_000),
    batch=st.integers(1, 1000),
    streams=st.integers(1, 100),
    retention_days=st.floats(0, 400),
    readers=st.floats(0, 5),
    replayed_gb=st.floats(0, 1e4),
    searches=st.floats(0, 1e8),
    followers=st.floats(0, 100),
    jobs=st.floats(0, 1e8),
    job_batch=st.integers(1, 1000),
    copies=st.floats(0, 1e8),
    watches=st.floats(0, 100),
    watch_topics=st.integers(1, 1000),
    sockets=st.floats(0, 1e5),
    pushes=st.floats(0, 1e8),
    webhooks=st.floats(0, 1e8),
    events=st.floats(0, 1e8),
    event_batch=st.integers(1, 1000),
    lanes=st.integers(1, 32),
    deduped=st.booleans(),
    feature_tables=st.integers(0, 10),
    feature_rows=st.floats(0, 1e7),
    row_bytes=st.integers(1, 20_000),
    feature_reads=st.floats(0, 1e8),
    indexed=st.booleans(),
)


def estimated(work: Workload) -> Estimate:
    return Estimate(work, counted(), standard())


def test_nothing_but_what_stands_is_paid_while_nobody_comes() -> None:
    idle = bill(estimated(Workload()))
    assert set(idle.parts()) <= {"standing", "observe"}
    assert idle.of("standing", "kms.key") == 1.0
    assert idle.of("standing", "secrets.secret") == pytest.approx(0.80)
    assert idle.of("observe", "cloudwatch.metric") == 0
    assert idle.usd < 29.20, "one idle Kinesis stream"


def test_a_single_append_is_paid_by_hand() -> None:
    """One unit to write, one to trim, a request, an invocation: recomputed from the prices."""
    work = Workload(appends=1e6, readers=0, retention_days=0, cold_share=0)
    found = bill(estimated(work))
    assert found.of("append", "dynamodb.write") == pytest.approx(0.625)
    assert found.of("trim", "dynamodb.write") == pytest.approx(0.625)
    assert found.of("append", "api_gateway.request") == pytest.approx(1.00)
    assert found.of("append", "lambda.request") == pytest.approx(0.20)


@given(WORKLOADS)
def test_a_bill_is_the_sum_of_its_lines_and_no_line_is_negative(work: Workload) -> None:
    found = bill(estimated(work))
    assert all(line.usd >= 0 and line.quantity > 0 for line in found.lines)
    assert found.usd == pytest.approx(sum(found.parts().values()))
    assert len({(line.part, line.price) for line in found.lines}) == len(found.lines)
    assert found.usd >= bill(estimated(work.idle())).usd


@settings(max_examples=20)  # thirteen bills each
@given(WORKLOADS, st.floats(1, 10))
def test_more_of_anything_never_costs_less(work: Workload, factor: float) -> None:
    usd = bill(estimated(work)).usd
    for name in (
        *("appends", "searches", "replayed_gb", "readers", "retention_days", "followers"),
        *("jobs", "copies", "watches", "sockets", "pushes", "webhooks"),
        *("events", "feature_rows", "feature_reads"),
    ):
        more = replace(work, **{name: getattr(work, name) * factor})
        assert bill(estimated(more)).usd >= usd * (1 - 1e-9), name


@given(WORKLOADS)
def test_prices_are_linear(work: Workload) -> None:
    """With every price doubled the bill doubles: nothing in it is a constant."""
    doubled = standard()
    for name in list(doubled.entries):
        price = doubled.entries[name]
        as_text = (
            f'[{name}]\nusd = {price.usd * 2!r}\nper = {price.per}\nunit = "u"\nas_of = 2030-01-01\nsource = "s"\n'
        )
        doubled = doubled.replaced(parse(as_text.encode()))
    twice = replace(estimated(work), prices=doubled)
    assert bill(twice).usd == pytest.approx(2 * bill(estimated(work)).usd)
    assert show.kinesis(twice).usd == pytest.approx(2 * show.kinesis(estimated(work)).usd)


def test_segments_are_made_by_size_by_records_or_by_age() -> None:
    rare = Workload(appends=10)
    assert rare.segments == 10
    steady = Workload(appends=1e6)
    assert steady.segments == pytest.approx(SECONDS / 300)
    large = Workload(appends=1e6, record_bytes=16 * 1024 * 1024)
    assert large.segments == 1e6
    assert Workload(appends=1e6, batch=50_000, record_bytes=1).segments == pytest.approx(5e5)


def test_a_job_run_is_billed_with_the_workers_that_its_submission_starts() -> None:
    """A driver of 1 vCPU and 4 GB, one executor of 4 vCPUs and 12 GB, as `StartJobRun` is asked for them now."""
    started = deployed_template.figures("prod")["job"]
    assert msgspec.to_builtins(counted().templates["prod"].job) == started
    assert started == {
        "driver_vcpus": 1,
        "driver_gb": 4,
        "executors": 1,
        "executor_vcpus": 4,
        "executor_gb": 12,
    }
    estimate = estimated(Workload(appends=1e6, indexed=True))
    hours = jobs(estimate).wall_s / 3600
    assert bill(estimate).of("index", "emr_serverless.vcpu") == pytest.approx(hours * 5 * 0.052624)
    assert bill(estimate).of("index", "emr_serverless.memory") == pytest.approx(hours * 16 * 0.0057785)


def test_one_job_runs_at_a_time() -> None:
    busy = estimated(Workload(appends=1e9, streams=1000, indexed=True, index_age_s=60))
    assert jobs(busy).runs == pytest.approx(SECONDS / 120)
    assert jobs(estimated(Workload(appends=1e9, metrics_s=0))).runs == 0
    patient = estimated(Workload(appends=1e9, streams=1000, indexed=True, index_age_s=3600))
    assert jobs(patient).runs < jobs(busy).runs / 20


def test_the_metrics_stream_is_sealed_and_not_indexed() -> None:
    """It is written every minute while requests come, and then sealed like what is asked for."""
    steady = Workload(appends=1e7)
    assert steady.flushes == pytest.approx(SECONDS / 60)
    assert steady.metrics_segments == pytest.approx(SECONDS / 300)
    assert jobs(estimated(steady)).runs == 0
    eager = replace(steady, index_age_s=60)
    assert jobs(estimated(replace(eager, indexed=True))).runs == pytest.approx(SECONDS / 300)
    rare = Workload(appends=10)
    assert (rare.flushes, rare.metrics_segments) == (20, 20)
    with_it, without = bill(estimated(eager)).parts(), bill(estimated(replace(eager, metrics_s=0))).parts()
    assert {name for name in with_it if name not in without} == {"own metrics"}
    assert with_it["own metrics"] < 2


def test_an_idle_sandbox_costs_less_than_four_dollars_and_production_what_the_page_itemises() -> None:
    dev, prod = (bill(estimated(Workload(environment=name))) for name in ("dev", "prod"))
    assert dev.usd < 4
    paid = {line.price for line in prod.lines} - {line.price for line in dev.lines}
    assert paid == {*("kms.key", "kms.request", "cloudwatch.alarm", "cloudwatch.dashboard", "lambda.snapshot_cache")}


def test_the_page_says_what_an_earlier_versions_snapshot_costs() -> None:
    """It is billed until the version is removed. https://aws.amazon.com/lambda/pricing/, SnapStart"""
    a_day = bill(estimated(Workload())).of("standing", "lambda.snapshot_cache") / DAYS
    said = f"{PROD.earlier_version_days} days of it are\nUSD {a_day * PROD.earlier_version_days:.2f}, one day {a_day:.2f}."
    assert said in PAGE.read_text()


def test_the_page_counts_the_alarms_of_production() -> None:
    parts = json.loads(synthesize())["Resources"].items()
    alarms = {name: part["Properties"] for name, part in parts if part["Type"] == "AWS::CloudWatch::Alarm"}
    canary = {name: alarm for name, alarm in alarms.items() if name.startswith("Canary")}
    metrics = [sum(map(deployed_template.metrics_of, found.values())) for found in (alarms, canary)]
    said = f"({metrics[0]} in {len(alarms)} alarms; {metrics[1]} in {len(canary)} of them end a canary)"
    assert said in " ".join(PAGE.read_text().split())


def test_alarms_are_billed_by_the_metrics_that_they_look_at() -> None:
    """https://aws.amazon.com/cloudwatch/pricing/: an alarm over metric math is billed for each metric in it."""
    template = counted().templates["prod"]
    assert template.alarm_metrics > 30
    found = bill(estimated(Workload()))
    assert found.of("standing", "cloudwatch.alarm") == pytest.approx(template.alarm_metrics * 0.10)


def test_schedules_that_find_nothing_write_a_sign_of_life_and_what_an_alarm_compares() -> None:
    assert counted().idle_metrics == ["indexer Ticks", "relay Sweeps", "sealer StreamEvents", "sealer Sweeps"]
    assert bill(estimated(Workload())).of("standing", "cloudwatch.metric") == pytest.approx(4 * 0.30)


def test_the_model_assumes_the_settings_that_are_deployed() -> None:
    work, settings = Workload(), Settings()
    assert (work.index_age_s, work.metrics_s, work.seal_age_s, work.trim_age_s) == tuple(
        ms / 1000
        for ms in (
            settings.index_age_ms,
            settings.metrics_interval_ms,
            settings.seal_age_ms,
            settings.trim_age_ms,
        )
    )
    assert (work.spill_bytes, work.seal_bytes, work.seal_records) == (
        *(settings.spill_bytes, settings.seal_bytes, settings.seal_records),
    )


def test_a_watch_looks_as_often_as_the_model_assumes() -> None:
    assumed = Assumptions()
    assert (assumed.follower_poll_s, assumed.watch_check_s) == (watch._POLL_S, watch._CHECK_S)
    assert (assumed.watch_in_turn, assumed.stream_s) == (watch._IN_TURN, Settings().sse_seconds)


def test_jobs_one_by_one_are_three_requests_and_three_entries() -> None:
    """Each entry is one unit to write and one to trim; a tenth of all that, if ten jobs are in a request."""
    single, ten = (
        bill(estimated(Workload(jobs=1e8, job_batch=batch, record_bytes=50, cold_share=0))) for batch in (1, 10)
    )
    idle = bill(estimated(Workload()))
    assert single.of("queue", "api_gateway.request") == pytest.approx(300)
    assert single.of("queue", "dynamodb.write") == pytest.approx(6 * 62.5, rel=0.001)
    assert ten.parts()["queue"] == pytest.approx(single.parts()["queue"] / 10, rel=0.05)
    assert set(single.parts()) - set(idle.parts()) == {"queue", "seal", "own metrics"}


def test_an_append_that_a_router_copies_is_one_run_of_the_relay_and_one_entry() -> None:
    copied = bill(estimated(Workload(copies=1e8, retention_days=0)))
    assert copied.of("route", "dynamodb.write") == pytest.approx(2 * 62.5, rel=0.001)
    assert copied.of("route", "lambda.request") == pytest.approx(20, rel=0.01)
    assert bill(estimated(Workload(copies=1e8))).of("route", "s3.storage") > 0


def test_a_watch_is_paid_by_the_second_and_by_its_looks() -> None:
    def read_usd(topics: int) -> float:
        return bill(estimated(Workload(watches=1, watch_topics=topics))).of("watch", "dynamodb.read")

    looks = 4 * SECONDS * 0.125 / 1e6
    assert read_usd(8) - read_usd(1) == pytest.approx(7 * looks)
    assert read_usd(9) == read_usd(1_000) == pytest.approx(read_usd(8) - 4.5 * looks), "a bell, and 3 in turn"
    seconds = bill(estimated(Workload(watches=1))).of("watch", "lambda.compute")
    assert seconds == pytest.approx(SECONDS * 1769 / 1024 * 0.0000133334, rel=0.001)


def test_a_silent_socket_costs_minutes_and_a_push_a_message_for_each_32_kib() -> None:
    silent = bill(estimated(Workload(sockets=1000)))
    assert silent.of("socket", "api_gateway.socket_minute") == pytest.approx(1000 * SECONDS / 60 * 0.25e-6)
    for size, messages in ((32 * 1024, 1), (32 * 1024 + 1, 2)):
        pushed = bill(estimated(Workload(pushes=1e6, record_bytes=size)))
        assert pushed.of("socket", "api_gateway.socket_message") == pytest.approx(messages)


def test_a_webhook_is_three_invocations_and_two_of_them_wait_for_the_receiver() -> None:
    quick, slow = (
        bill(Estimate(Workload(webhooks=1e6), counted(), standard(), Assumptions(receiver_ms=ms))) for ms in (0, 1000)
    )
    assert quick.of("webhook", "lambda.request") == pytest.approx(0.60)
    waited = slow.of("webhook", "lambda.compute") - quick.of("webhook", "lambda.compute")
    assert waited == pytest.approx(1e6 * (1769 + 512) / 1024 * 0.0000133334)


def test_peers_are_compared_with_the_streams_alone() -> None:
    work = Workload(appends=1e6, metrics_s=0)
    more = replace(work, jobs=1e6, copies=1e6, watches=1, sockets=1, pushes=1e6, webhooks=1e6, events=1e6)
    more = replace(more, feature_rows=1e6, feature_reads=1e6)
    assert bill(show.alone(estimated(more))) == bill(estimated(work))


def test_bodies_above_512_kib_are_several_requests() -> None:
    at = {size: Workload(appends=1, record_bytes=size, readers=0) for size in (524_288, 524_289)}
    assert [bill(estimated(work)).of("append", "api_gateway.request") * 1e6 for work in at.values()] == [1, 2]


def test_kinesis_by_hand() -> None:
    """1e6 batches of 50,000 bytes are 49 KiB each; a day is free, six cost more, the rest less."""
    found = show.kinesis(estimated(Workload(appends=1e6, batch=100, retention_days=30)))
    gb = 49 * 1024 * 1e6 / 1e9
    assert found.of("stream", "kinesis.stream") == pytest.approx(29.20)
    assert found.of("data in", "kinesis.data_in") == pytest.approx(gb * 0.08)
    assert found.of("keep", "kinesis.retention_week") == pytest.approx(gb * 6 / DAYS * 0.10)
    assert found.of("keep", "kinesis.retention_year") == pytest.approx(gb * 23 / DAYS * 0.023)


def test_the_servers_of_a_peer_come_in_pairs() -> None:
    calm, busy = (show.self_hosted(estimated(Workload(appends=n))) for n in (1, 351 * SECONDS))
    assert busy.of("servers", "ec2.server") == pytest.approx(2 * calm.of("servers", "ec2.server"))


def test_both_cost_the_same_where_they_cross() -> None:
    estimate = estimated(Workload(appends=1e6, batch=1000, metrics_s=0))
    for peer in (show.kinesis, show.self_hosted):
        found = show.crossings(estimate, peer)
        assert found
        for appends, dearer_above in found:
            at = replace(estimate, work=show.scaled(estimate.work, appends))
            assert bill(at).usd == pytest.approx(peer(at).usd, rel=0.01)
            above = replace(estimate, work=show.scaled(estimate.work, appends * 1.05))
            assert (bill(above).usd > peer(above).usd) == dearer_above


def test_the_least_batch_is_the_first_that_is_not_dearer() -> None:
    estimate = estimated(Workload(appends=2e8, metrics_s=0, environment="dev"))
    least = show.least_batch(estimate, show.kinesis)
    assert least is not None and least > 1
    for batch in (least, least // 2):
        at = replace(estimate, work=replace(estimate.work, appends=2e8 / batch, batch=batch))
        assert (bill(at).usd <= show.kinesis(at).usd) == (batch == least)
    assert show.least_batch(replace(estimate, work=replace(estimate.work, followers=1e6)), show.kinesis) is None
    assert show.least_batch(replace(estimate, prices=dear_kinesis()), show.kinesis) == 1


def dear_kinesis() -> Prices:
    """Kinesis for a million dollars an hour."""
    text = b'[kinesis.stream]\nusd = 1e6\nper = 1\nunit = "hour"\nas_of = 2030-01-01\nsource = "s"\n'
    return standard().replaced(parse(text))


def test_unit_prices_do_not_depend_on_what_was_asked() -> None:
    one, other = (list(units.appends(estimated(Workload(appends=n, searches=n)))) for n in (0, 1e7))
    assert one == other
    singles = {found.record_bytes: found.million_appends for found in one if found.batch == 1}
    assert singles[500] == pytest.approx(3.5, abs=0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[dynamodb.write]\nusd = -1\nper = 1\nunit = 'u'\nas_of = 2030-01-01\nsource = 's'", "negative"),
        (b"[dynamodb.write]\nusd = 1\nper = 0\nunit = 'u'\nas_of = 2030-01-01\nsource = 's'", "no units"),
        (b"[dynamodb.write]\nusd = 1", "not a price table"),
        (b"[dynamodb", "not a price table"),
        (b"\xff", "not a price table"),
        (b"[dynamodb.wrote]\nusd = 1\nper = 1\nunit = 'u'\nas_of = 2030-01-01\nsource = 's'", "no such price"),
    ],
)
def test_a_price_table_that_makes_no_sense_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(BadPrices, match=said):
        standard().replaced(parse(text))


def test_every_price_says_when_and_where_and_is_paid_for_something() -> None:
    prices = standard()
    for name, price in prices.entries.items():
        assert price.source.startswith("https://aws.amazon.com/"), name
        assert price.as_of.year >= 2024, name
    work = Workload(
        appends=1e8,
        batch=1000,
        retention_days=400,
        replayed_gb=1,
        searches=1e6,
        followers=1,
        indexed=True,
        sockets=1,
        pushes=1,
        events=1,
    )
    estimate = Estimate(work, counted(), prices)
    paid = {line.price for drawn in (bill, show.kinesis, show.self_hosted) for line in drawn(estimate).lines}
    assert set(prices.entries) - paid == {
        "cloudwatch.logs_kept",
        "dynamodb.stream_read",
        "emr_serverless.storage",
        "eventbridge.event",
    }


def test_a_ledger_leaves_out_what_there_is_nothing_of() -> None:
    ledger = Ledger(standard())
    ledger.add("a", "kms.key", 0)
    ledger.add("b", "kms.key", 1)
    ledger.add("b", "kms.key", 2)
    (line,) = ledger.bill("x").lines
    assert (line.part, line.quantity, line.usd) == ("b", 3, 3.0)
