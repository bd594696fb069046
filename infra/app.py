"""The CDK application and its stack: `cdk synth -c environment=prod`, or `CDK_OUTDIR=cdk.out python -m infra.app`.

Both commands bundle the functions, which needs uv with a filled cache or a network, but no docker and no AWS account.
`python -m infra.synth` writes only the template.

A deployment is two stacks: the data (`infra/data.py`), and the application that works on it, which is here. The
application has no state: it may be destroyed and deployed again at any time.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from aws_cdk import App, CfnOutput, DefaultStackSynthesizer, Duration, Stack, Tags
from constructs import Construct

from infra import findings
from infra.alarms import Alarms
from infra.bundle import PythonFunction
from infra.canary import Canary
from infra.dashboard import Dashboard
from infra.data import DataStack
from infra.doors import MODULE, SOCKETS, WRAPPER, HttpDoor, SocketDoor, StreamingDoor
from infra.environments import STREAMING_SPARE_SECONDS, Environment, environment_of
from infra.machine import LAMBDA, Machine
from infra.notices import Budget, KeyWatch
from infra.permissions import (
    api_statements,
    folder_statements,
    indexer_statements,
    relay_statements,
    sealer_statements,
)
from infra.queues import FOLDER_TIMEOUT, INDEXER_TIMEOUT, RELAY_TIMEOUT, SEALER_TIMEOUT
from infra.spark import Spark
from infra.triggers import FolderTriggers, IndexerTriggers, RelayTriggers, SealerTriggers
from infra.versions import Versions

STACK_ID = "Headrace"
DATA_STACK_ID = "HeadraceData"
# An HTTP API gives up after 30 s; the function must answer, or fail, before its client is told nothing.
API_TIMEOUT = Duration.seconds(29)
# A delivery takes 10 s at most, if the resolver of its host's name is not slow, too.
WEBHOOK_TIMEOUT = Duration.seconds(20)
# It waits for others; the rest is a handshake of TLS.
WEBHOOK_MEMORY_MB = 512


class HeadraceStack(Stack):
    """The application of one Headrace deployment, in one account and region: doors, functions, triggers, alarms."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: Environment,
        data: DataStack,
        machine: Machine = LAMBDA,
        **stack: Any,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=environment.stack_name,
            termination_protection=environment.termination_protection,
            # The CLI checks the bootstrap version itself; the template then needs no parameter.
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
            **stack,
        )
        tables, bucket, key, queues = data.tables, data.bucket, data.key, data.queues
        stores = {
            "HEADRACE_STACK": self.stack_name,
            "HEADRACE_WAL_TABLE": tables.wal.table_name,
            "HEADRACE_CATALOG_TABLE": tables.catalog.table_name,
            "HEADRACE_WATERMARKS_TABLE": tables.watermarks.table_name,
            "HEADRACE_PRODUCERS_TABLE": tables.producers.table_name,
            "HEADRACE_FOLLOWS_TABLE": tables.follows.table_name,
            "HEADRACE_SESSIONS_TABLE": tables.sessions.table_name,
            "HEADRACE_FEATURES_TABLE": tables.features.table_name,
            "HEADRACE_BUCKET": bucket.bucket_name,
            **environment.variables,
        }
        serving = {
            **stores,
            "HEADRACE_API_KEYS_SECRET": data.api_keys.secret_arn,
            "HEADRACE_SIGNING_KEYS_SECRET": data.signing_keys.secret_arn,
            "HEADRACE_RELAY_QUEUE_URL": queues.relay.queue_url,
            "HEADRACE_DELAY_QUEUE_URL": queues.delay.queue_url,
        }
        may_serve = api_statements(
            tables=tables,
            bucket=bucket,
            key=key,
            api_keys=data.api_keys,
            signing_keys=data.signing_keys,
            relay=queues.relay,
            delay=queues.delay,
        )
        api = PythonFunction(
            self,
            "Api",
            artifact="api",
            machine=machine,
            timeout=API_TIMEOUT,
            environment=serving,
            memory_mb=environment.memory_mb,
            log_retention=environment.log_retention,
            snap_start=environment.snap_start and not environment.api_provisioned_concurrency,
            reserved_concurrency=environment.api_reserved_concurrency,
            provisioned_concurrency=environment.api_provisioned_concurrency,
        )
        api.grant(may_serve)
        door = HttpDoor(self, "Door", function=api.live, environment=environment)
        streaming_urls = {}
        doors = {"api": api}
        if environment.streaming_door:
            streaming = PythonFunction(
                self,
                "Streaming",
                artifact="api",
                machine=machine,
                same_code_as=api,
                handler=MODULE,
                timeout=Duration.seconds(environment.streaming_seconds + STREAMING_SPARE_SECONDS),
                environment={**serving, **WRAPPER, "HEADRACE_SSE_SECONDS": str(environment.streaming_seconds)},
                memory_mb=environment.memory_mb,
                log_retention=environment.log_retention,
                reserved_concurrency=environment.streaming_reserved_concurrency,
                provisioned_concurrency=environment.streaming_provisioned_concurrency,
            )
            doors["streaming"] = streaming
            streaming.grant(may_serve)
            streaming_door = StreamingDoor(self, "StreamingDoor", function=streaming.live)
            streaming_urls["StreamingUrl"] = streaming_door.url

        sockets = PythonFunction(
            self,
            "Sockets",
            artifact="api",
            machine=machine,
            same_code_as=api,
            handler=SOCKETS,
            timeout=API_TIMEOUT,
            environment=serving,
            memory_mb=environment.memory_mb,
            log_retention=environment.log_retention,
            snap_start=environment.snap_start,
        )
        sockets.grant(may_serve)
        socket_door = SocketDoor(self, "WebSocket", function=sockets.live, environment=environment)
        for one in doors.values():  # there is no socket at the doors of HTTP: they tell where
            one.function.add_environment("HEADRACE_SOCKETS_URL", socket_door.url)
            # What receivers of webhooks are told.
            one.function.add_environment("HEADRACE_BASE_URL", door.url)

        sealer = PythonFunction(
            self,
            "Sealer",
            artifact="sealer",
            machine=machine,
            timeout=SEALER_TIMEOUT,
            environment={**stores, "HEADRACE_DELAY_QUEUE_URL": queues.delay.queue_url},
            memory_mb=environment.memory_mb,
            log_retention=environment.log_retention,
            reserved_concurrency=environment.sealer_reserved_concurrency,
            # Only the sweep is asynchronous, and the next tick repeats it.
            retry_attempts=0,
        )
        sealer.grant(
            sealer_statements(
                tables=tables,
                bucket=bucket,
                key=key,
                delay=queues.delay,
                stream_dead_letters=queues.stream_dead_letters,
            )
        )
        SealerTriggers(
            self,
            "SealerTriggers",
            function=sealer.live,
            wal=tables.wal,
            delay=queues.delay,
            stream_dead_letters=queues.stream_dead_letters,
            invocations_per_shard=environment.sealer_invocations_per_shard,
            queue_concurrency=environment.sealer_queue_concurrency,
        )

        # It posts to strangers, and may do nothing but write its log.
        webhook = PythonFunction(
            self,
            "Webhook",
            artifact="webhook",
            machine=machine,
            timeout=WEBHOOK_TIMEOUT,
            environment={"HEADRACE_STACK": self.stack_name},
            memory_mb=WEBHOOK_MEMORY_MB,
            log_retention=environment.log_retention,
        )

        relay = PythonFunction(
            self,
            "Relay",
            artifact="relay",
            machine=machine,
            timeout=RELAY_TIMEOUT,
            environment={
                **stores,
                "HEADRACE_RELAY_QUEUE_URL": queues.relay.queue_url,
                "HEADRACE_FOLD_QUEUE_URL": queues.fold.queue_url,
                "HEADRACE_API_KEYS_SECRET": data.api_keys.secret_arn,
                "HEADRACE_SOCKETS_ENDPOINT": socket_door.endpoint,
                "HEADRACE_SIGNING_KEYS_SECRET": data.signing_keys.secret_arn,
                "HEADRACE_WEBHOOK_FUNCTION": webhook.live.function_arn,
                "HEADRACE_BASE_URL": door.url,
            },
            memory_mb=environment.memory_mb,
            log_retention=environment.log_retention,
            # Only the sweep is asynchronous, and the next tick repeats it.
            retry_attempts=0,
        )
        relay.grant(
            relay_statements(
                tables=tables,
                bucket=bucket,
                key=key,
                queue=queues.relay,
                stream_dead_letters=queues.relay_stream_dead_letters,
                api_keys=data.api_keys,
                connections=socket_door.connections,
                signing_keys=data.signing_keys,
                webhook=webhook.live,
                fold=queues.fold,
            )
        )
        RelayTriggers(
            self,
            "RelayTriggers",
            function=relay.live,
            wal=tables.wal,
            queue=queues.relay,
            stream_dead_letters=queues.relay_stream_dead_letters,
            invocations_per_shard=environment.relay_invocations_per_shard,
            queue_concurrency=environment.relay_queue_concurrency,
        )

        folder = PythonFunction(
            self,
            "Folder",
            artifact="folder",
            machine=machine,
            timeout=FOLDER_TIMEOUT,
            environment={**stores, "HEADRACE_FOLD_QUEUE_URL": queues.fold.queue_url},
            memory_mb=environment.memory_mb,
            log_retention=environment.log_retention,
        )
        folder.grant(folder_statements(tables=tables, bucket=bucket, key=key, queue=queues.fold))
        FolderTriggers(
            self,
            "FolderTriggers",
            function=folder.live,
            queue=queues.fold,
            queue_concurrency=environment.folder_queue_concurrency,
        )

        spark = Spark(self, "Spark", bucket=bucket, key=key, environment=environment)
        indexer = PythonFunction(
            self,
            "Indexer",
            artifact="indexer",
            machine=machine,
            timeout=INDEXER_TIMEOUT,
            environment={
                **stores,
                "HEADRACE_JOBS_TABLE": tables.jobs.table_name,
                "HEADRACE_INDEX_QUEUE_URL": queues.index.queue_url,
                "HEADRACE_SPARK_APPLICATION": spark.application.attr_application_id,
                "HEADRACE_SPARK_ROLE": spark.role.role_arn,
                "HEADRACE_SPARK_ENTRY_POINT": spark.assets.entry_point.s3_object_url,
                "HEADRACE_SPARK_PACKAGES": spark.assets.packages.s3_object_url,
                "HEADRACE_SPARK_ENVIRONMENT": spark.assets.environment.s3_object_url,
            },
            memory_mb=environment.memory_mb,
            log_retention=environment.log_retention,
            # A job-state event that failed; a tick is repeated by the next one.
            retry_attempts=2,
        )
        indexer.grant(
            indexer_statements(
                tables=tables,
                bucket=bucket,
                key=key,
                queue=queues.index,
                application=spark.application,
                job_role=spark.role,
            )
        )
        IndexerTriggers(
            self,
            "IndexerTriggers",
            function=indexer.live,
            queue=queues.index,
            application=spark.application,
            queue_concurrency=environment.indexer_queue_concurrency,
        )

        Versions(
            self,
            "Versions",
            functions=[*doors.values(), sockets, sealer, indexer, relay, webhook, folder],
            kept_days=environment.earlier_version_days,
            log_retention=environment.log_retention,
            machine=machine,
        )
        if environment.canary_minutes:
            Canary(
                self,
                "Canary",
                doors=doors,
                workers=[sockets, sealer, indexer, relay, webhook, folder],
                api_id=door.api.api_id,
                minutes=environment.canary_minutes,
            )

        deployed = {
            **doors,
            "sockets": sockets,
            "sealer": sealer,
            "indexer": indexer,
            "relay": relay,
            "webhook": webhook,
            "folder": folder,
        }
        functions = {name: one.function for name, one in deployed.items()}
        dead_letters = {
            "delay": queues.delay_dead_letters,
            "stream": queues.stream_dead_letters,
            "index": queues.index_dead_letters,
            "relay": queues.relay_dead_letters,
            "relay-stream": queues.relay_stream_dead_letters,
            "fold": queues.fold_dead_letters,
        }
        alarms = None
        if environment.alarms:
            alarms = Alarms(
                self,
                "Alarms",
                functions=functions,
                dead_letters=dead_letters,
                notify=environment.notify,
                email=environment.notify_email,
            )
            if alarms.topic is not None and key is not None:
                KeyWatch(self, "KeyWatch", key=key, topic=alarms.topic)
        if environment.monthly_budget_usd:
            Budget(
                self,
                "Budget",
                name=environment.stack_name,
                stack_names=[environment.data_stack_name, environment.stack_name],
                usd=environment.monthly_budget_usd,
                email=environment.notify_email,
            )
        if environment.dashboard:
            Dashboard(
                self,
                "Dashboard",
                functions=functions,
                tables={
                    "wal": tables.wal,
                    "catalog": tables.catalog,
                    "watermarks": tables.watermarks,
                    "producers": tables.producers,
                    "follows": tables.follows,
                    "sessions": tables.sessions,
                    "features": tables.features,
                    "jobs": tables.jobs,
                },
                queues={"delay": queues.delay, "index": queues.index, "relay": queues.relay, "fold": queues.fold},
                dead_letters=dead_letters,
                api_id=door.api.api_id,
                alarms=alarms.alarms if alarms else (),
            )

        outputs = {"ApiUrl": door.url, "SocketsUrl": socket_door.url, **streaming_urls}
        if alarms is not None and alarms.topic is not None:
            outputs["AlarmTopicArn"] = alarms.topic.topic_arn
        for name, value in outputs.items():
            CfnOutput(self, name, value=str(value))


def build_app(*, context: Mapping[str, Any] | None = None, outdir: str | None = None) -> App:
    """Returns the CDK app for the environment that the context describes (`infra/environments.py`).

    Its synth raises RuntimeError, and prints the findings, if the template has a finding that is not acknowledged.

    `architecture` and `python` in the context choose another machine than Lambda's usual one, for which functions are
    built and on which they run: `-c architecture=x86_64 -c python=3.12` is for trying the artifacts on a machine at
    hand.

    Raises BadEnvironment if the context describes no environment, ValueError for an unknown architecture or Python.
    """
    app = App(context=context, outdir=outdir, analytics_reporting=False)
    environment = environment_of(app.node.get_all_context())
    machine = Machine(
        architecture=app.node.try_get_context("architecture") or LAMBDA.architecture,
        python=app.node.try_get_context("python") or LAMBDA.python,
    )
    data = DataStack(app, DATA_STACK_ID, environment=environment)
    application = HeadraceStack(app, STACK_ID, environment=environment, data=data, machine=machine)
    for name, value in environment.tag_values.items():
        Tags.of(app).add(name, value)
    findings.acknowledge(data, application)
    findings.check(app)
    return app


def main() -> None:
    """Synthesizes the app for the CDK's command line. Ends with a sentence if the context is wrong."""
    try:
        app = build_app()
    except ValueError as exc:
        sys.exit(f"headrace: {exc}")
    app.synth()


if __name__ == "__main__":
    main()
