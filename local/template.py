"""Deploys the synthesized CDK template on this machine, and reads from it which triggers call which functions.

moto's CloudFormation knows few types, so only tables, buckets and queues are deployed. Everything else that matters
here (functions, event source mappings, rules, a bucket's notifications, roles' permissions) is read from the template
itself; secrets are created with a generated value. References in these parts become outputs of the deployed stack, so
that CloudFormation, not this file, resolves names and ARNs; only what is not deployed (an EMR application, a role) gets
a made-up name.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from local.access import UnknownPolicy, read_policies
from local.access_calls import ACCOUNT, arn
from local.deployment import Deployment, EventTrigger, Function, QueueTrigger, ScheduleTrigger, StreamTrigger
from local.environment import client

TEMPLATE_PATH = Path(__file__).resolve().parent.parent / "infra" / "template"
STACK_NAME = "headrace-data"  # as of a deployment: what moto makes of it are the data
DEPLOYED_TYPES = frozenset({"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue"})
_PSEUDO_PREFIX = "AWS::"
# `${Name}` and `${Name.Attribute}`; `${!Literal}` refers to nothing.
_IN_TEXT = re.compile(r"\$\{([^!}.][^}.]*)[^}]*\}")
EMR = "emr-serverless.amazonaws.com"
_RESOLVED_OUTPUT = "Resolved{}"
# The value of a reference to a resource that the emulator runs itself, or does without: `{}` is its logical id.
_MADE_UP = {
    "AWS::EMRServerless::Application": "00headraceemulator",
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{}}",
    "AWS::Lambda::Alias": arn("lambda", "function:{}"),
    "AWS::SecretsManager::Secret": arn("secretsmanager", "secret:{}"),
}

Json = dict[str, Any]


class UnusableTemplate(ValueError):
    """The template is missing or malformed, can't be deployed, or has an element that the emulator does not support;
    the message says which.
    """


def read_template(path: Path = TEMPLATE_PATH) -> Json:
    """Reads the template as JSON; of a folder, all of its templates, as one (`joined`). Raises UnusableTemplate if it is
    missing or not a template.
    """
    if path.is_dir():
        return joined([read_template(one) for one in sorted(path.glob("*.template.json"))])
    try:
        template: Json = json.loads(path.read_text())
    except FileNotFoundError as exc:
        raise UnusableTemplate(f"no template at {path}: synthesize the CDK app and commit its template") from exc
    except json.JSONDecodeError as exc:
        raise UnusableTemplate(f"{path} is not JSON: {exc}") from exc
    if "Resources" not in template:
        raise UnusableTemplate(f"{path} has no Resources")
    return template


def joined(templates: Iterable[Json]) -> Json:
    """Returns the templates of several stacks as that of one: each import becomes what the other stack exports.

    Raises UnusableTemplate if two resources or outputs have one name, or an import has no export.
    """
    one: Json = {"Resources": {}, "Outputs": {}}
    exported: Json = {}
    for template in templates:
        outputs = template.get("Outputs", {})
        exported |= {output["Export"]["Name"]: output["Value"] for output in outputs.values() if "Export" in output}
        shown = {name: output for name, output in outputs.items() if "Export" not in output}
        for part, named in (("Resources", template["Resources"]), ("Outputs", shown)):
            if twice := one[part].keys() & named.keys():
                raise UnusableTemplate(f"two stacks have {part} of one name: {sorted(twice)}")
            one[part] |= named
    return {part: _with_imports(named, exported) for part, named in one.items()}


def _with_imports(value: Any, exported: Json) -> Any:
    match value:
        case {"Fn::ImportValue": str(name)}:
            if name not in exported:
                raise UnusableTemplate(f"no stack exports {name}")
            return exported[name]
        case dict():
            return {key: _with_imports(inner, exported) for key, inner in value.items()}
        case list():
            return [_with_imports(inner, exported) for inner in value]
    return value


class Cloud(Protocol):
    """The port of what can be deployed on this machine: the emulated AWS, or the durable single machine."""

    def create_stack(self, template: Json) -> dict[str, str]:
        """Creates the tables, buckets and queues of a template, and returns the values of its outputs. Raises
        UnusableTemplate if it can't.
        """

    def create_secret(self, name: str) -> None:
        """Creates a secret with a generated value."""

    def notify(self, bucket: str, queues: Sequence[Json]) -> None:
        """Has a bucket notify queues of new objects. `queues` has the form of S3's API."""


class MotoCloud:
    """The port on the emulated AWS at an endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def create_stack(self, template: Json) -> dict[str, str]:
        """Creates a stack, and returns its outputs. Raises UnusableTemplate if it fails."""
        cloudformation = client("cloudformation", self._endpoint)
        cloudformation.create_stack(StackName=STACK_NAME, TemplateBody=json.dumps(template))
        stack = cloudformation.describe_stacks(StackName=STACK_NAME)["Stacks"][0]
        if stack["StackStatus"] != "CREATE_COMPLETE":
            why = stack.get("StackStatusReason")
            raise UnusableTemplate(f"the stack was not created: {stack['StackStatus']} {why}")
        return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}

    def create_secret(self, name: str) -> None:
        """Creates a secret with a generated value."""
        client("secretsmanager", self._endpoint).create_secret(Name=name, SecretString=secrets.token_hex())

    def notify(self, bucket: str, queues: Sequence[Json]) -> None:
        """Has a bucket notify queues of new objects."""
        client("s3", self._endpoint).put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration={"QueueConfigurations": queues}
        )


def deploy(template: Json, endpoint: str, cloud: Cloud | None = None) -> Deployment:
    """Creates the template's tables, buckets, queues and secrets, and returns their names and the triggers.

    Args:
        endpoint: the URL of the emulated AWS.
        cloud: where they are created; by default there.

    Raises:
        UnusableTemplate: the stack can't be created, or an element is not supported, such as a trigger that refers to
            something that was not deployed.
    """
    cloud = cloud or MotoCloud(endpoint)
    template = {**template, "Resources": _without_administration(template["Resources"])}
    triggers = _parts_of_type(template, "AWS::Lambda::EventSourceMapping")
    rules = _parts_of_type(template, "AWS::Events::Rule")
    functions = _parts_of_type(template, "AWS::Lambda::Function")
    deployable = deployable_part(template)
    buckets = _parts_of_type(template, "AWS::S3::Bucket")
    names = [{"Ref": name} for name in buckets]
    grants = _parts_of_type(template, "AWS::IAM::Policy")
    references = _resolvable_references([triggers, rules, functions, buckets, names, grants], deployable["Resources"])
    outputs: Json = deployable["Outputs"]
    for number, reference in enumerate(references):
        outputs[_RESOLVED_OUTPUT.format(number)] = {"Value": json.loads(reference)}

    stack = cloud.create_stack(deployable)
    resolved = {reference: stack.pop(_RESOLVED_OUTPUT.format(n)) for n, reference in enumerate(references)}
    reader = _Reader(template["Resources"], resolved)
    mappings = [reader.mapping(name, part["Properties"]) for name, part in triggers.items()]
    try:
        policies = read_policies(template["Resources"], resolved)
    except UnknownPolicy as exc:
        raise UnusableTemplate(str(exc)) from exc
    for name in _parts_of_type(template, "AWS::SecretsManager::Secret"):
        cloud.create_secret(name)
    for name, part in buckets.items():
        queues = reader.notified_queues(name, part.get("Properties", {}))
        if queues:
            cloud.notify(resolved[json.dumps({"Ref": name})], queues)
    return Deployment(
        endpoint=endpoint,
        outputs=stack,
        policies=policies,
        functions={name: reader.function(name, part["Properties"]) for name, part in functions.items()},
        aliases={
            name: reader.function_name({"Ref": name}) for name in _parts_of_type(template, "AWS::Lambda::Alias")
        },
        streams=tuple(m for m in mappings if isinstance(m, StreamTrigger)),
        queues=tuple(m for m in mappings if isinstance(m, QueueTrigger)),
        schedules=tuple(s for name, part in rules.items() for s in reader.schedules(name, part["Properties"])),
        events=tuple(e for name, part in rules.items() for e in reader.events(name, part["Properties"])),
    )


def _without_administration(resources: Json) -> Json:
    """Returns the resources without what administers a deployment on AWS, and has nothing to do here: functions whose
    code is in the template itself, rules that call them or tell people, and roles that neither a function nor a job
    has.
    """
    functions = {name: part for name, part in resources.items() if part["Type"] == "AWS::Lambda::Function"}
    inline = {name for name, part in functions.items() if "ZipFile" in part["Properties"].get("Code", {})}
    own = {
        name for one in functions.keys() - inline for name in _references(functions[one]["Properties"].get("Role"))
    }

    def is_kept(name: str, part: Json) -> bool:
        properties = part.get("Properties", {})
        match part["Type"]:
            case "AWS::Events::Rule":
                called = {resources.get(target, {}).get("Type") for target in _references(properties.get("Targets"))}
                return "AWS::SNS::Topic" not in called and not inline & set(_references(properties.get("Targets")))
            case "AWS::IAM::Role":
                return name in own or EMR in json.dumps(properties)
            case "AWS::IAM::Policy":
                return all(is_kept(role, resources[role]) for role in _references(properties["Roles"]))
        return name not in inline

    return {name: part for name, part in resources.items() if is_kept(name, part)}


def deployable_part(template: Json) -> Json:
    """Returns the part of the template that moto can create: tables, buckets and queues, and the outputs that refer
    only to these. Properties that refer to other parts are left out.
    """
    resources = {n: p for n, p in template["Resources"].items() if p["Type"] in DEPLOYED_TYPES}
    kept = {name: _without_dangling(part, resources.keys()) for name, part in resources.items()}
    for name, part in kept.items():
        if part["Properties"].get("FifoQueue"):  # its name must say so, which moto forgets when it invents one
            part["Properties"].setdefault("QueueName", f"{STACK_NAME}-{name}.fifo")
    outputs = {
        name: {"Value": output["Value"]}
        for name, output in template.get("Outputs", {}).items()
        if _refers_only_to(output["Value"], resources.keys())
    }
    return {"Resources": kept, "Outputs": outputs}


def _without_dangling(part: Json, known: Any) -> Json:
    properties = {k: v for k, v in part.get("Properties", {}).items() if _refers_only_to(v, known)}
    return {"Type": part["Type"], "Properties": properties}


def _refers_only_to(value: Any, known: Any) -> bool:
    return all(name in known or name.startswith(_PSEUDO_PREFIX) for name in _references(value))


def _references(value: Any) -> Iterator[str]:
    """Yields the logical ids that a value refers to by Ref, Fn::GetAtt or Fn::Sub. For Fn::If and Fn::ImportValue,
    which are not supported, yields a text that is no id.
    """
    if isinstance(value, list):
        for element in value:
            yield from _references(element)
        return
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key == "Ref":
            yield inner
        elif key == "Fn::GetAtt":
            yield inner[0] if isinstance(inner, list) else inner.split(".", 1)[0]
        elif key == "Fn::Sub" and isinstance(inner, str):
            yield from _IN_TEXT.findall(inner)
        elif key == "Fn::ImportValue" or key == "Fn::If":
            yield f"{key} is not supported"
        else:
            yield from _references(inner)


def _resolvable_references(values: Any, known: Any) -> list[str]:
    """Returns every distinct intrinsic function in `values` that the deployed resources can resolve, as JSON text."""
    found: dict[str, None] = {}

    def visit(value: Any) -> None:
        if _is_intrinsic(value):
            if _refers_only_to(value, known) and any(True for _ in _references(value)):
                found[json.dumps(value, sort_keys=True)] = None
            return
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            visit(inner)

    visit(values)
    return list(found)


def _is_intrinsic(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith(("Ref", "Fn::"))


def _parts_of_type(template: Json, kind: str) -> dict[str, Json]:
    return {name: part for name, part in template["Resources"].items() if part["Type"] == kind}


class _Reader:
    """A reader of the template's functions and triggers, which replaces references by the values that CloudFormation
    resolved.
    """

    def __init__(self, resources: Json, resolved: dict[str, str]) -> None:
        self._resources = resources
        self._resolved = resolved

    def function(self, name: str, properties: Json) -> Function:
        variables = properties.get("Environment", {}).get("Variables", {})
        values = {key: self._text(value) for key, value in variables.items()}
        return Function(
            name=name,
            handler=str(properties.get("Handler", "")).replace("/", "."),
            timeout_seconds=int(properties.get("Timeout", 3)),
            memory_mb=int(properties.get("MemorySize", 128)),
            environment={key: value for key, value in values.items() if value is not None},
            role=next(_references(properties.get("Role")), ""),
        )

    def mapping(self, name: str, properties: Json) -> StreamTrigger | QueueTrigger:
        source = self._text(properties["EventSourceArn"])
        if source is None:
            raise UnusableTemplate(
                f"{name}: the event source is no deployed resource: {properties['EventSourceArn']}"
            )
        filters = tuple(
            json.loads(entry["Pattern"]) for entry in properties.get("FilterCriteria", {}).get("Filters", [])
        )
        reports = "ReportBatchItemFailures" in properties.get("FunctionResponseTypes", [])
        function = self.function_name(properties["FunctionName"])
        if ":sqs:" in source:
            return QueueTrigger(
                function=function,
                queue_arn=source,
                batch_size=int(properties.get("BatchSize", 10)),
                filters=filters,
                reports_item_failures=reports,
            )
        if ":dynamodb:" not in source:
            raise UnusableTemplate(f"{name}: only streams and queues are dispatched: {source}")
        on_failure = properties.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
        window_seconds = int(properties.get("MaximumBatchingWindowInSeconds", 0))
        return StreamTrigger(
            function=function,
            stream_arn=source,
            batch_size=int(properties.get("BatchSize", 100)),
            window_seconds=window_seconds,
            prompt=not window_seconds,
            filters=filters,
            maximum_retries=int(properties.get("MaximumRetryAttempts", -1)),
            maximum_age_seconds=int(properties.get("MaximumRecordAgeInSeconds", -1)),
            bisect=bool(properties.get("BisectBatchOnFunctionError", False)),
            reports_item_failures=reports,
            on_failure_arn=self._text(on_failure) if on_failure else None,
        )

    def schedules(self, name: str, properties: Json) -> list[ScheduleTrigger]:
        """Returns one trigger for each function that an enabled scheduled rule calls; none for event-pattern rules."""
        expression = properties.get("ScheduleExpression")
        if not expression or properties.get("State", "ENABLED") != "ENABLED":
            return []
        functions = [(target, self.function_name(target["Arn"])) for target in properties.get("Targets", [])]
        return [ScheduleTrigger(function, name, expression, target.get("Input")) for target, function in functions]

    def events(self, name: str, properties: Json) -> list[EventTrigger]:
        """Returns one trigger for each function that an enabled rule with an event pattern calls."""
        pattern = properties.get("EventPattern")
        if not pattern or properties.get("State", "ENABLED") != "ENABLED":
            return []
        return [
            EventTrigger(
                function=self.function_name(target["Arn"]),
                rule=name,
                pattern=self._pattern(name, pattern),
                input=target.get("Input"),
                retries=int(target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 2)),
            )
            for target in properties.get("Targets", [])
        ]

    def notified_queues(self, name: str, properties: Json) -> list[Json]:
        """Returns the queues that a bucket notifies of its objects, in the form of S3's API. Raises UnusableTemplate if
        a queue is not in the template.
        """
        configurations = properties.get("NotificationConfiguration", {}).get("QueueConfigurations", [])
        found = []
        for configuration in configurations:
            queue = self._text(configuration["Queue"])
            if queue is None:
                raise UnusableTemplate(f"{name}: a notified queue is no deployed resource: {configuration['Queue']}")
            rules = configuration.get("Filter", {}).get("S3Key", {}).get("Rules", [])
            key = {"Key": {"FilterRules": [{"Name": rule["Name"], "Value": rule["Value"]} for rule in rules]}}
            found.append({"QueueArn": queue, "Events": [configuration["Event"]], "Filter": key})
        return found

    def _pattern(self, name: str, value: Any) -> Any:
        """Returns an event pattern in which references are replaced."""
        if isinstance(value, list):
            return [self._pattern(name, element) for element in value]
        if not isinstance(value, dict):
            return value
        if not _is_intrinsic(value):
            return {key: self._pattern(name, inner) for key, inner in value.items()}
        text = self._text(value)
        if text is None:
            raise UnusableTemplate(f"{name}: the event pattern refers to no deployed resource: {value}")
        return text

    def _text(self, value: Any) -> str | None:
        """Returns a literal, or the value that a reference resolves to; None if only AWS could resolve it."""
        if isinstance(value, str | int):
            return str(value)
        made_up = [(name, _MADE_UP.get(self._kind(name))) for name in _references(value)]
        match made_up:
            case [(name, str(form))]:
                return form.format(name)
        return self._resolved.get(json.dumps(value, sort_keys=True))

    def _kind(self, name: str) -> str:
        return str(self._resources.get(name, {}).get("Type", ""))

    def function_name(self, value: Any) -> str:
        """Returns the logical id of the function that `value` refers to, through aliases and versions."""
        for name in _references(value):
            part = self._resources.get(name, {})
            if part.get("Type") == "AWS::Lambda::Function":
                return name
            if part.get("Type") in ("AWS::Lambda::Alias", "AWS::Lambda::Version"):
                return self.function_name(part["Properties"]["FunctionName"])
        raise UnusableTemplate(f"no function of this template: {value}")
