"""The settings that may differ between two deployments: every number that a platform team tunes.

An environment is a preset (`dev`, `prod`) with any of its values replaced, in `cdk.json` or on the command line: `cdk
deploy -c environment=prod -c headrace:request_burst=800`. Values are checked when they are given, so that a wrong one
fails the synth and not a running deployment.

The settings of the engine (`headrace/settings.py`) are given in the same way: `headrace:index_age_ms=60000` is
`HEADRACE_INDEX_AGE_MS=60000` in every function.

`python -m infra.environments` prints the table in `docs/operations.md`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any

from aws_cdk import aws_logs as logs

from headrace.settings import PREFIX as VARIABLE
from headrace.settings import Settings, SettingsError
from infra.fields import CERTIFICATE, DOMAIN, EMAIL, NAME, TAGS, ZONE, BadEnvironment, allowed, check, parse, setting

_RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    731: logs.RetentionDays.TWO_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
}
DATA_SUFFIX = "-data"
# Lambda takes no longer function than 15 minutes, and one that streams needs a while after its streams have ended.
STREAMING_SPARE_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The settings of one deployment. Raises BadEnvironment if one is out of bounds, or contradicts another."""

    name: str = setting(
        "ends the stacks' names: `headrace-<name>`, and `headrace-<name>-data`; it does not itself end in `-data`",
        form=NAME,
        called="a name",
    )
    log_retention_days: int = setting("age at which function and access logs are dropped", one_of=tuple(_RETENTION))
    noncurrent_version_days: int = setting(
        "how long an overwritten or deleted object can be brought back, and how long deleted data lingers",
        least=1,
        most=3650,
    )
    keep_data: bool = setting(
        "the stack with the data refuses to be deleted, and what it holds survives it; if not, the bucket alone does, "
        "and nothing can read it without the key"
    )
    customer_key: bool = setting(
        "a KMS key of your own encrypts tables, bucket and secret; if not, keys of AWS do; not to be taken away later"
    )
    termination_protection: bool = setting("the application's stack refuses to be deleted, too")
    requests_per_second: int = setting(
        "steady rate that the HTTP API admits; above it clients get 429", least=1, most=100_000
    )
    request_burst: int = setting("requests admitted at once above the steady rate", least=1, most=100_000)
    account_concurrency: int = setting(
        "Lambda's limit for account and region (`aws lambda get-account-settings`); below 500 a preset reserves nothing",
        least=10,
        most=1_000_000,
    )
    api_reserved_concurrency: int = setting(
        "instances of the api at most, which no other function can take; 0: what the account has",
        least=0,
        most=100_000,
    )
    api_provisioned_concurrency: int = setting(
        "instances of the api that are always there, and paid for; 0: none, and new ones start from a snapshot",
        least=0,
        most=100_000,
    )
    streaming_door: bool = setting("a Function URL at which responses stream")
    memory_mb: int = setting("memory of each function; Lambda gives a whole vCPU at 1,769", least=512, most=10_240)
    snap_start: bool = setting("new instances of the api start from a snapshot, which is paid for while it is kept")
    streaming_seconds: int = setting(
        "how long an SSE response stays open there; a client that left is paid for so long",
        least=1,
        most=900 - STREAMING_SPARE_SECONDS,
    )
    streaming_reserved_concurrency: int = setting(
        "instances of the streaming function at most, each of which serves one reader; 0: what the account has",
        least=0,
        most=100_000,
    )
    streaming_provisioned_concurrency: int = setting(
        "instances of the streaming function that are always there, and paid for", least=0, most=100_000
    )
    domain_name: str = setting(
        "custom domain of the HTTP API; empty: API Gateway's own", form=DOMAIN, called="a domain"
    )
    certificate_arn: str = setting(
        "certificate of the custom domain, of the same region", form=CERTIFICATE, called="an ARN"
    )
    hosted_zone_id: str = setting(
        "Route 53 zone that gets the domain's record; empty: you make it", form=ZONE, called="an id"
    )
    sealer_invocations_per_shard: int = setting(
        "concurrent sealer runs for one shard of the WAL's stream; items of one log stay in order", least=1, most=10
    )
    sealer_reserved_concurrency: int = setting(
        "instances that are the sealer's alone, and its most; 0: what others leave",
        least=0,
        most=100_000,
    )
    sealer_queue_concurrency: int = setting(
        "concurrent sealer runs for the delayed queue: a backlog must leave Lambdas to the api", least=2, most=1000
    )
    indexer_queue_concurrency: int = setting("concurrent indexer runs for its queue", least=2, most=1000)
    relay_invocations_per_shard: int = setting(
        "concurrent relay runs for one shard of the WAL's stream; items of one log stay in order", least=1, most=10
    )
    relay_queue_concurrency: int = setting("concurrent relay runs for its queue", least=2, most=1000)
    folder_queue_concurrency: int = setting("lanes that are folded at once", least=2, most=1000)
    canary_minutes: int = setting(
        "how long a tenth of the requests alone goes to a new version of a door; 0: all at once",
        one_of=(0, 5, 10, 15, 30),
    )
    earlier_version_days: int = setting(
        "how long after a deployment one earlier version of each function stays; a snapshot of it is paid for",
        least=1,
        most=365,
    )
    spark_maximum_vcpus: int = setting(
        "vCPUs of all index jobs at once: a bound on what a backlog costs", least=8, most=4000
    )
    spark_warm_executors: int = setting(
        "executors, with one driver, that stay started until the application has been idle; they are paid for",
        least=0,
        most=64,
    )

    tags: str = setting(
        "tags of everything, beside those of AWS: `team=data,cost-center=42`", form=TAGS, called="name=value,…"
    )
    alarms: bool = setting("one alarm for each promise; each of its metrics is paid for")
    notify: bool = setting("alarms tell an SNS topic, which the stack then makes")
    notify_email: str = setting(
        "address that subscribes to the topic; it has to confirm", form=EMAIL, called="an e-mail address"
    )
    monthly_budget_usd: int = setting(
        "US dollars a month of both stacks, at 80 % of which, spent or foreseen, `notify_email` is told; 0: none",
        least=0,
        most=10_000_000,
    )
    dashboard: bool = setting("one dashboard, which is paid for")
    engine: Mapping[str, int] = field(default_factory=dict)
    """Settings of the engine that were given, by their names in `headrace.settings`."""

    def __post_init__(self) -> None:
        for one in settings():
            check(one, getattr(self, one.name))
        self._check_together()

    def _check_together(self) -> None:
        if self.name.endswith(DATA_SUFFIX):
            raise BadEnvironment(f"name ends in {DATA_SUFFIX}, which the stack with the data does: {self.name!r}")
        if bool(self.domain_name) != bool(self.certificate_arn):
            raise BadEnvironment("domain_name and certificate_arn go together")
        if self.hosted_zone_id and not self.domain_name:
            raise BadEnvironment("hosted_zone_id is for a domain_name, and there is none")
        for door in ("api", "streaming"):
            reserved = getattr(self, f"{door}_reserved_concurrency")
            provisioned = getattr(self, f"{door}_provisioned_concurrency")
            if 0 < reserved < provisioned:
                raise BadEnvironment(
                    f"{door}_provisioned_concurrency is above {door}_reserved_concurrency: {provisioned} > {reserved}"
                )
        if self.notify and not self.alarms:
            raise BadEnvironment("notify is for alarms, and alarms is false")
        if self.notify_email and not (self.notify or self.monthly_budget_usd):
            raise BadEnvironment("notify_email is for notify or monthly_budget_usd, and there is neither")
        if self.monthly_budget_usd and not self.notify_email:
            raise BadEnvironment("monthly_budget_usd is told to notify_email, and there is none")
        try:
            Settings.from_environment(self.variables)
        except SettingsError as exc:
            raise BadEnvironment(str(exc)) from exc
        self._check_reservations()
        if self.termination_protection and not self.keep_data:
            raise BadEnvironment("keep_data=false is for a stack without termination_protection")
        needed = SPARK_DRIVER_VCPUS + self.spark_warm_executors * SPARK_EXECUTOR_VCPUS
        if self.spark_warm_executors and needed > self.spark_maximum_vcpus:
            raise BadEnvironment(
                f"spark_warm_executors need more than spark_maximum_vcpus: {needed} > {self.spark_maximum_vcpus}"
            )

    def _check_reservations(self) -> None:
        """Lambda refuses a reservation that would leave the account's other functions fewer than 100 instances."""
        reserved = sum(getattr(self, name) for name in RESERVATIONS)
        if reserved and reserved + UNRESERVED > self.account_concurrency:
            raise BadEnvironment(
                f"{', '.join(RESERVATIONS)} leave fewer than {UNRESERVED} of account_concurrency: "
                f"{reserved} of {self.account_concurrency}"
            )

    @property
    def stack_name(self) -> str:
        """Returns the name of the application's stack."""
        return f"headrace-{self.name}"

    @property
    def data_stack_name(self) -> str:
        """Returns the name of the data's stack. No application has it: a name can't end in `-data`."""
        return f"{self.stack_name}{DATA_SUFFIX}"

    @property
    def tag_values(self) -> dict[str, str]:
        """Returns the tags by their names."""
        pairs = (pair.split("=", 1) for pair in self.tags.split(",") if pair)
        return {name.strip(): value.strip() for name, value in pairs}

    @property
    def variables(self) -> dict[str, str]:
        """Returns the environment variables of functions that stand for the given settings of the engine."""
        return {f"{VARIABLE}{name.upper()}": str(value) for name, value in self.engine.items()}

    @property
    def log_retention(self) -> logs.RetentionDays:
        """Returns `log_retention_days` as the CDK's type."""
        return _RETENTION[self.log_retention_days]


def settings() -> list[Field[Any]]:
    """Returns the fields of `Environment` that are settings by themselves."""
    return [one for one in fields_of(Environment) if one.metadata]


RESERVATIONS = ("api_reserved_concurrency", "streaming_reserved_concurrency", "sealer_reserved_concurrency")
# What Lambda keeps for functions without a reservation.
# https://docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html
UNRESERVED = 100
# New accounts have a limit of 10, and a first deployment that reserves anything there fails.
LEAST_FOR_RESERVATIONS = 500

# Every number of the engine but one, which follows from `streaming_seconds`.
ENGINE = tuple(name for name, kind in Settings.__annotations__.items() if kind == "int" and name != "sse_seconds")

# Of an index job's workers (`functions/indexer/runs.py`): warm workers of another size would serve no job.
SPARK_DRIVER_VCPUS = 1
SPARK_EXECUTOR_VCPUS = 4


DEV = Environment(
    name="dev",
    log_retention_days=7,
    noncurrent_version_days=7,
    keep_data=True,
    customer_key=False,
    termination_protection=False,
    requests_per_second=500,
    request_burst=500,
    account_concurrency=10,
    api_reserved_concurrency=0,
    api_provisioned_concurrency=0,
    memory_mb=1769,
    snap_start=False,
    streaming_door=True,
    streaming_seconds=60,
    streaming_reserved_concurrency=0,
    streaming_provisioned_concurrency=0,
    domain_name="",
    certificate_arn="",
    hosted_zone_id="",
    sealer_invocations_per_shard=1,
    sealer_reserved_concurrency=0,
    sealer_queue_concurrency=2,
    indexer_queue_concurrency=2,
    relay_invocations_per_shard=2,
    relay_queue_concurrency=2,
    folder_queue_concurrency=2,
    canary_minutes=0,
    earlier_version_days=14,
    spark_maximum_vcpus=16,
    tags="",
    alarms=False,
    notify=False,
    notify_email="",
    monthly_budget_usd=0,
    dashboard=False,
    spark_warm_executors=0,
)

PROD = replace(
    DEV,
    name="prod",
    log_retention_days=90,
    noncurrent_version_days=30,
    customer_key=True,
    termination_protection=True,
    requests_per_second=5_000,
    request_burst=5_000,
    snap_start=True,
    account_concurrency=1_000,
    # A third for readers that stay, a tenth for what must go on whatever readers do; the rest is the api's and indexer's.
    streaming_reserved_concurrency=300,
    sealer_reserved_concurrency=100,
    sealer_invocations_per_shard=4,
    sealer_queue_concurrency=20,
    indexer_queue_concurrency=4,
    relay_invocations_per_shard=10,
    relay_queue_concurrency=20,
    folder_queue_concurrency=20,
    canary_minutes=10,
    spark_maximum_vcpus=128,
    alarms=True,
    notify=True,
    dashboard=True,
)

PREFIX = "headrace:"
"""The prefix of settings' keys in the CDK context."""

ENVIRONMENTS = {environment.name: environment for environment in (DEV, PROD)}


def table() -> str:
    """Returns a Markdown table of all settings with their presets."""
    rows = ["| value | dev | prod | allowed | meaning |", "|---|---|---|---|---|"]
    for one in settings():
        presets = [_shown(getattr(environment, one.name)) for environment in (DEV, PROD)]
        rows.append(f"| `{one.name}` | {' | '.join(presets)} | {allowed(one)} | {one.metadata['meaning']} |")
    return "\n".join(rows) + "\n"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


def environment_of(context: Mapping[str, Any]) -> Environment:
    """Returns the environment that a context describes; `dev` unless it names another. All other keys without the
    prefix `headrace:` are ignored.

    Raises:
        BadEnvironment: the preset or a setting is unknown, or a setting is invalid.
    """
    preset = context.get("environment") or DEV.name
    if preset not in ENVIRONMENTS:
        raise BadEnvironment(f"unknown environment: expected={sorted(ENVIRONMENTS)} actual={preset}")
    kinds = {one.name: str(one.type) for one in settings()}
    given: dict[str, Any] = {}
    engine: dict[str, int] = {}
    for key, value in context.items():
        name = key.removeprefix(PREFIX)
        if name == key:
            continue
        if name in ENGINE:
            engine[name] = _number(name, value)
            continue
        if name not in kinds:
            near = difflib.get_close_matches(name, [*kinds, *ENGINE], n=1)
            advice = f"did you mean {PREFIX}{near[0]}?" if near else f"known={','.join([*kinds, *ENGINE])}"
            raise BadEnvironment(f"unknown value {key}: {advice}")
        given[name] = parse(kinds[name], value)
    limit = given.get("account_concurrency", ENVIRONMENTS[preset].account_concurrency)
    if type(limit) is int and limit < LEAST_FOR_RESERVATIONS:
        given = {**dict.fromkeys(RESERVATIONS, 0), **given}
    return replace(ENVIRONMENTS[preset], **given, engine=engine)


def _number(name: str, value: Any) -> int:
    """Returns the number that the context gives a setting of the engine."""
    parsed = parse("int", value)
    if type(parsed) is not int or parsed < 0:
        raise BadEnvironment(f"{name} is not a number from 0 on: {value!r}")
    return parsed


if __name__ == "__main__":
    print(table(), end="")
