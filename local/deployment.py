"""A deployed template as plain values: names of resources, functions, and what triggers them."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace import decoding
from headrace.settings import SETTING_OF_OUTPUT
from local.access import Policies

WRAPPER_VARIABLE = "AWS_LAMBDA_EXEC_WRAPPER"
TASK_ROOT = "/var/task/"


class Function(msgspec.Struct, frozen=True):
    """A Lambda function. `handler` is a dotted name such as functions.sealer.handler.handler; `role` is a logical
    id.
    """

    name: str
    handler: str
    timeout_seconds: int = 3
    memory_mb: int = 128
    environment: dict[str, str] = {}
    role: str = ""

    @property
    def wrapper(self) -> str:
        """Returns the path, within the artifact, of the script that starts the function's process; empty if Lambda's
        own client starts it.
        """
        return self.environment.get(WRAPPER_VARIABLE, "").removeprefix(TASK_ROOT)


class StreamTrigger(msgspec.Struct, frozen=True):
    """An event source mapping of a DynamoDB stream. -1 means no limit, as in CloudFormation.

    Attributes:
        prompt: whether the template gathers no events for a while. Then an instance of its own serves it: its events wait
            for none of the function's other triggers, as on Lambda. Other triggers of a function share an instance, which
            saves memory.
    """

    function: str
    stream_arn: str
    batch_size: int = 100
    window_seconds: int = 0
    prompt: bool = False
    filters: tuple[dict[str, Any], ...] = ()
    maximum_retries: int = -1
    maximum_age_seconds: int = -1
    bisect: bool = False
    reports_item_failures: bool = False
    on_failure_arn: str | None = None


class QueueTrigger(msgspec.Struct, frozen=True):
    """An event source mapping of an SQS queue."""

    function: str
    queue_arn: str
    batch_size: int = 10
    filters: tuple[dict[str, Any], ...] = ()
    reports_item_failures: bool = False


class ScheduleTrigger(msgspec.Struct, frozen=True):
    """A rule with a schedule, rate(…) or cron(…). If the target has an `input`, it replaces the event."""

    function: str
    rule: str
    expression: str
    input: str | None = None


class EventTrigger(msgspec.Struct, frozen=True):
    """A rule with an event pattern, and one of the functions that it calls. If the target has an `input`, it replaces
    the event.
    """

    function: str
    rule: str
    pattern: dict[str, Any]
    input: str | None = None
    retries: int = 2


KEYS_SECRET = "HEADRACE_API_KEYS_SECRET"


class Deployment(msgspec.Struct, frozen=True):
    """A template as deployed at `endpoint`.

    Attributes:
        aliases: the function of each alias, by logical ids.
        emr_endpoint: serves its job runs; empty if there are none.
    """

    endpoint: str
    outputs: dict[str, str]
    functions: dict[str, Function] = {}
    aliases: dict[str, str] = {}
    streams: tuple[StreamTrigger, ...] = ()
    queues: tuple[QueueTrigger, ...] = ()
    schedules: tuple[ScheduleTrigger, ...] = ()
    events: tuple[EventTrigger, ...] = ()
    emr_endpoint: str = ""
    policies: Policies = Policies()

    def role_of(self, handler: str) -> str:
        """Returns the role of the function with this handler; empty if there is no such function."""
        return next((one.role for one in self.functions.values() if one.handler == handler), "")

    def streaming_function(self) -> Function:
        """Returns the function behind the Function URL. Raises LookupError if the template has none."""
        for function in self.functions.values():
            if function.wrapper:
                return function
        raise LookupError("the template has no streaming door")

    def settings(self) -> dict[str, str]:
        """Returns the HEADRACE_* settings that the template decides: the environments of its functions, and the names
        of its resources. Without the secret of API keys: an emulator needs no key, unless it is given some.
        """
        settings = self._settings()
        settings.pop(KEYS_SECRET, None)
        return {**settings, **self.resource_names()}

    def keys_secret(self) -> dict[str, str]:
        """Returns the setting that names the secret of API keys. Raises KeyError if the template has none."""
        return {KEYS_SECRET: self._settings()[KEYS_SECRET]}

    def _settings(self) -> dict[str, str]:
        settings: dict[str, str] = {}
        for function in self.functions.values():
            settings.update({k: v for k, v in function.environment.items() if k.startswith("HEADRACE_")})
        return settings

    def resource_names(self) -> dict[str, str]:
        """Returns the settings that name tables, bucket and queue."""
        return {s: self.outputs[output] for output, s in SETTING_OF_OUTPUT.items() if output in self.outputs}

    def to_json(self) -> bytes:
        """Encodes the deployment as JSON, for `from_json`."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(data: bytes) -> Deployment:
        """Decodes a deployment. Raises msgspec.ValidationError if `data` is something else."""
        return decoding.from_json(data, Deployment)


def name_in_arn(arn: str) -> str:
    """Returns the name of a queue from its ARN."""
    return arn.rsplit(":", 1)[-1]
