"""Functions get what they need to know, no secret among it, and their logs end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk.assertions import Match, Template

from headrace.settings import PREFIX, Settings
from infra.environments import PROD
from tests.infra.resources import Resources

STORES = {
    "HEADRACE_WAL_TABLE": "TablesWal",
    "HEADRACE_CATALOG_TABLE": "TablesCatalog",
    "HEADRACE_WATERMARKS_TABLE": "TablesWatermarks",
    "HEADRACE_PRODUCERS_TABLE": "TablesProducers",
    "HEADRACE_BUCKET": "DataBucket",
}
OWN = {
    "api": {"HEADRACE_API_KEYS_SECRET": "AdminKeySecret"},
    "sealer": {"HEADRACE_DELAY_QUEUE_URL": "QueuesDelayE"},
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
    assert set(ours) == set(expected)
    for name, logical_id in expected.items():
        assert _referred(ours[name]).startswith(logical_id)
    assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "Headrace"
    assert variables["POWERTOOLS_SERVICE_NAME"] == function


def _referred(value: dict[str, Any]) -> str:
    """The resource whose name or ARN a variable holds, or the address of what a deployment uploads."""
    match value:
        case {"Ref": logical_id}:  # a secret's Ref is its ARN
            return str(logical_id)
        case {"Fn::GetAtt": [logical_id, "Arn" | "ApplicationId"]}:  # of nothing that has a secret value
            return str(logical_id)
        case {"Fn::Sub": str(uploaded)}:
            return uploaded
    raise AssertionError(f"anything else may be a secret's value: {value}")


def test_every_variable_is_a_setting_and_every_name_that_settings_want_is_given(resources: Resources) -> None:
    given = {
        name
        for function in resources.of("Lambda::Function").values()
        for name in function["Properties"]["Environment"]["Variables"]
        if name.startswith(PREFIX)
    }
    defaults = zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)
    settings = {PREFIX + name.upper(): default for name, default in defaults}
    assert given <= set(settings)
    names_without_default = {name for name, default in settings.items() if default == ""}
    # Keys in plain text, and an address to listen on, are for a local server.
    assert names_without_default - given == {"HEADRACE_API_KEYS", "HEADRACE_HOST"}


def test_a_lambda_never_serves_without_keys(synthesized: str) -> None:
    assert "HEADRACE_ALLOW_INSECURE_NO_AUTH" not in synthesized
    assert '"HEADRACE_API_KEYS"' not in synthesized


def test_the_admin_key_is_generated_encrypted_and_nowhere_in_the_template(
    resources: Resources, synthesized: str
) -> None:
    _, secret = resources.one("SecretsManager::Secret")
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


def test_the_api_answers_before_the_door_gives_up(resources: Resources) -> None:
    door_gives_up_s = 30
    assert resources.function("api")["Timeout"] < door_gives_up_s


def test_the_door_calls_the_snapshot_and_not_the_latest_code(resources: Resources) -> None:
    alias, _ = resources.one("Lambda::Alias")
    _, integration = resources.one("ApiGatewayV2::Integration")
    assert integration["IntegrationUri"] == {"Ref": alias}
    assert resources.function("api")["SnapStart"] == {"ApplyOn": "PublishedVersions"}


def test_every_path_and_method_reaches_the_application(resources: Resources) -> None:
    routes = resources.of("ApiGatewayV2::Route").values()
    assert {route["Properties"]["RouteKey"] for route in routes} == {"ANY /", "ANY /{proxy+}"}
    _, api = resources.one("ApiGatewayV2::Api")
    assert "CorsConfiguration" not in api, "the door would answer preflights in the application's place"


def test_logs_end_and_belong_to_the_stack(resources: Resources) -> None:
    groups = resources.of("Logs::LogGroup")
    assert len(groups) == 4
    for group in groups.values():
        assert group["Properties"]["RetentionInDays"] == 90
        assert group["DeletionPolicy"] == "Delete"
    used = {f["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] for f in resources.of("Lambda::Function").values()}
    assert len(used) == 3
    assert used < set(groups)


def test_the_door_logs_requests_without_headers_or_queries(template: Template, resources: Resources) -> None:
    template.has_resource_properties(
        "AWS::ApiGatewayV2::Stage",
        {"AccessLogSettings": {"DestinationArn": Match.any_value(), "Format": Match.any_value()}},
    )
    _, stage = resources.one("ApiGatewayV2::Stage")
    fields = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"request_id", "status", "latency_ms"} <= set(fields)
    assert "header" not in str(fields).lower()
    assert "query" not in str(fields).lower()


def test_the_door_limits_the_rate(resources: Resources) -> None:
    _, stage = resources.one("ApiGatewayV2::Stage")
    assert stage["DefaultRouteSettings"] == {
        "ThrottlingRateLimit": PROD.requests_per_second,
        "ThrottlingBurstLimit": PROD.request_burst,
    }
