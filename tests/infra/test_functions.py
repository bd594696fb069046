"""Functions get what they need to know, no secret among it, and their logs end."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.settings import PREFIX, Settings
from infra.environments import PROD
from tests.infra.resources import Resources

STORES = {
    "HEADRACE_WAL_TABLE": "TablesWal",
    "HEADRACE_CATALOG_TABLE": "TablesCatalog",
    "HEADRACE_WATERMARKS_TABLE": "TablesWatermarks",
    "HEADRACE_PRODUCERS_TABLE": "TablesProducers",
    "HEADRACE_FOLLOWS_TABLE": "TablesFollows",
    "HEADRACE_SESSIONS_TABLE": "TablesSessions",
    "HEADRACE_FEATURES_TABLE": "TablesFeatures",
    "HEADRACE_BUCKET": "DataBucket",
}
OWN = {
    "api": {
        "HEADRACE_API_KEYS_SECRET": "AdminKeySecret",
        "HEADRACE_BASE_URL": "DoorApi",
        "HEADRACE_SIGNING_KEYS_SECRET": "SigningKeySecret",
        "HEADRACE_RELAY_QUEUE_URL": "QueuesRelay",
        "HEADRACE_DELAY_QUEUE_URL": "QueuesDelayE",
    },
    "streaming": {
        "HEADRACE_API_KEYS_SECRET": "AdminKeySecret",
        "HEADRACE_BASE_URL": "DoorApi",
        "HEADRACE_SIGNING_KEYS_SECRET": "SigningKeySecret",
        "HEADRACE_RELAY_QUEUE_URL": "QueuesRelay",
        "HEADRACE_DELAY_QUEUE_URL": "QueuesDelayE",
    },
    "relay": {
        "HEADRACE_API_KEYS_SECRET": "AdminKeySecret",
        "HEADRACE_RELAY_QUEUE_URL": "QueuesRelay",
        "HEADRACE_SIGNING_KEYS_SECRET": "SigningKeySecret",
        "HEADRACE_FOLD_QUEUE_URL": "QueuesFold",
        "HEADRACE_WEBHOOK_FUNCTION": "WebhookLive",
        "HEADRACE_BASE_URL": "DoorApi",
    },
    "sealer": {"HEADRACE_DELAY_QUEUE_URL": "QueuesDelayE"},
    "folder": {"HEADRACE_FOLD_QUEUE_URL": "QueuesFold"},
    "indexer": {
        "HEADRACE_JOBS_TABLE": "TablesJobs",
        "HEADRACE_INDEX_QUEUE_URL": "QueuesIndex",
        "HEADRACE_SPARK_APPLICATION": "SparkApplication",
        "HEADRACE_SPARK_ROLE": "SparkRole",
        "HEADRACE_SPARK_ENTRY_POINT": "s3://cdk-",
        "HEADRACE_SPARK_PACKAGES": "s3://cdk-",
        "HEADRACE_SPARK_ENVIRONMENT": "s3://cdk-",
    },
}


@pytest.mark.parametrize("function", OWN)
def test_the_environment_names_each_store_and_holds_no_secret(resources: Resources, function: str) -> None:
    variables = resources.function(function)["Environment"]["Variables"]
    expected = STORES | OWN[function]
    ours = {name: value for name, value in variables.items() if name.startswith("HEADRACE_")}
    assert ours.pop("HEADRACE_STACK") == "headrace-prod"
    if function == "streaming":
        assert int(ours.pop("HEADRACE_SSE_SECONDS")) == PROD.streaming_seconds
    for url in ("HEADRACE_SOCKETS_URL", "HEADRACE_SOCKETS_ENDPOINT"):  # `test_doors.py` looks at them
        ours.pop(url, None)
    assert set(ours) == set(expected)
    for name, logical_id in expected.items():
        assert _referred(ours[name]).startswith(logical_id)
    assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "Headrace"
    assert variables["POWERTOOLS_SERVICE_NAME"] == ("api" if function == "streaming" else function)


def _referred(value: dict[str, Any]) -> str:
    """Returns the resource whose name or ARN a variable holds, or the address of what a deployment uploads."""
    match value:
        case {"Ref": logical_id}:  # a secret's Ref is its ARN
            return str(logical_id)
        case {
            "Fn::GetAtt": [logical_id, "Arn" | "ApplicationId" | "ApiEndpoint"]
        }:  # of nothing that has a secret value
            return str(logical_id)
        case {"Fn::Sub": str(uploaded)}:
            return uploaded
    raise AssertionError(f"anything else may be a secret's value: {value}")


def test_every_variable_is_a_setting_and_every_name_that_settings_want_is_given(resources: Resources) -> None:
    given = {
        name
        for function in resources.serving.values()
        for name in function["Environment"]["Variables"]
        if name.startswith(PREFIX)
    }
    defaults = zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)
    settings = {PREFIX + name.upper(): default for name, default in defaults}
    assert given <= set(settings)
    names_without_default = {name for name, default in settings.items() if default == ""}
    # Keys in plain text, an address to listen on, and hosts that are obeyed without keys, are for a local server.
    assert names_without_default - given == {
        "HEADRACE_API_KEYS",
        "HEADRACE_SIGNING_KEYS",
        "HEADRACE_HOST",
        "HEADRACE_ALLOWED_HOSTS",
    }


def test_no_lambda_sends_webhooks_to_loopback(synthesized: str) -> None:
    assert "HEADRACE_WEBHOOK_LOOPBACK" not in synthesized
    assert '"HEADRACE_SIGNING_KEYS"' not in synthesized


def test_a_lambda_never_serves_without_keys(synthesized: str) -> None:
    assert "HEADRACE_ALLOW_INSECURE_NO_AUTH" not in synthesized
    assert '"HEADRACE_API_KEYS"' not in synthesized


@pytest.mark.parametrize("name", ["AdminKey", "SigningKey"])
def test_a_key_is_generated_encrypted_and_nowhere_in_the_template(
    resources: Resources, synthesized: str, name: str
) -> None:
    _, secret = resources.one("SecretsManager::Secret", name)
    assert secret["GenerateSecretString"]["PasswordLength"] >= 43
    assert secret["GenerateSecretString"]["ExcludePunctuation"] is True, "`:` and `,` separate keys"
    assert "KmsKeyId" in secret
    assert "SecretString" not in secret
    assert "{{resolve:" not in synthesized


@pytest.mark.parametrize("function", OWN)
def test_functions_are_python_on_arm_with_a_whole_vcpu(resources: Resources, function: str) -> None:
    properties = resources.function(function)
    assert properties["Runtime"] == "python3.13"
    assert properties["Architectures"] == ["arm64"]
    assert properties["MemorySize"] == 1769


def test_logs_end_and_belong_to_the_stack(resources: Resources) -> None:
    groups = resources.of("Logs::LogGroup")
    assert len(groups) == 10
    for group in groups.values():
        assert group["Properties"]["RetentionInDays"] == 90
        assert group["DeletionPolicy"] == "Delete"
    used = {f["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] for f in resources.of("Lambda::Function").values()}
    assert len(used) == 9
    assert used < set(groups)
