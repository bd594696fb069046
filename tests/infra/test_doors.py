"""The two doors: who gets in, how fast, under which name, and what is logged of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from aws_cdk.assertions import Match, Template

from infra.bundle import copy_sources
from infra.doors import BOOTSTRAP, MODULE, SOCKETS
from infra.environments import PROD
from tests.infra.resources import Resources

Synth = Callable[..., Resources]
CERTIFICATE = "arn:aws:acm:eu-west-1:123456789012:certificate/0a1b2c3d"


def test_the_api_answers_before_the_door_gives_up(resources: Resources) -> None:
    door_gives_up_s = 30
    assert resources.function("api")["Timeout"] < door_gives_up_s


def test_the_door_calls_the_snapshot_and_not_the_latest_code(resources: Resources) -> None:
    alias, _ = resources.one("Lambda::Alias", "Api")
    _, integration = resources.one("ApiGatewayV2::Integration", "Door")
    assert integration["IntegrationUri"] == {"Ref": alias}
    assert integration["PayloadFormatVersion"] == "2.0"
    assert resources.function("api")["SnapStart"] == {"ApplyOn": "PublishedVersions"}


def test_every_path_and_method_reaches_the_application(resources: Resources) -> None:
    routes = [route for key, route in resources.of("ApiGatewayV2::Route").items() if key.startswith("Door")]
    assert {route["Properties"]["RouteKey"] for route in routes} == {"ANY /", "ANY /{proxy+}"}
    assert {route["Properties"]["AuthorizationType"] for route in routes} == {"NONE"}
    _, api = resources.one("ApiGatewayV2::Api", "Door")
    assert "CorsConfiguration" not in api, "the door would answer preflights in the application's place"


def test_the_door_logs_requests_without_headers_or_queries(template: Template, resources: Resources) -> None:
    template.has_resource_properties(
        "AWS::ApiGatewayV2::Stage",
        {"AccessLogSettings": {"DestinationArn": Match.any_value(), "Format": Match.any_value()}},
    )
    _, stage = resources.one("ApiGatewayV2::Stage", "Door")
    fields = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"request_id", "route", "status", "latency_ms", "function_error", "door_error"} <= set(fields)
    assert fields["function_request_id"] == "$context.integration.requestId", (
        "the function's log says whose key it was"
    )
    assert "header" not in str(fields).lower()
    assert "query" not in str(fields).lower()


def test_the_door_limits_the_rate(resources: Resources) -> None:
    _, stage = resources.one("ApiGatewayV2::Stage", "Door")
    assert stage["AutoDeploy"] is True
    assert stage["DefaultRouteSettings"] == {
        "ThrottlingRateLimit": PROD.requests_per_second,
        "ThrottlingBurstLimit": PROD.request_burst,
    }


def test_responses_stream_through_a_url_that_anybody_may_call(resources: Resources) -> None:
    """The application checks keys, as behind the other door; Lambda wants both permissions for a public URL."""
    _, url = resources.one("Lambda::Url")
    assert (url["AuthType"], url["InvokeMode"]) == ("NONE", "RESPONSE_STREAM")
    assert "Cors" not in url, "the door would answer preflights in the application's place"
    target = url["TargetFunctionArn"]
    assert resources.by_id[target["Fn::GetAtt"][0]]["Properties"] == resources.function("streaming")
    assert url["Qualifier"] == "live"
    public = [
        p["Properties"] for p in resources.of("Lambda::Permission").values() if p["Properties"]["Principal"] == "*"
    ]
    assert all(
        resources.called(permission["FunctionName"]) == resources.function("streaming") for permission in public
    )
    assert {permission["Action"] for permission in public} == {"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"}
    (invoke,) = [permission for permission in public if permission["Action"] == "lambda:InvokeFunction"]
    assert invoke["InvokedViaFunctionUrl"] is True, "anybody could call the function past its URL"
    assert "StreamingUrl" in resources.outputs


def test_the_streaming_function_starts_through_a_script_of_its_artifact(resources: Resources, tmp_path: Path) -> None:
    function = resources.function("streaming")
    assert function["Environment"]["Variables"]["AWS_LAMBDA_EXEC_WRAPPER"] == f"/var/task/{BOOTSTRAP}"
    assert "SnapStart" not in function
    copy_sources(artifact="api", target=tmp_path)
    script = tmp_path / BOOTSTRAP
    assert os.access(script, os.X_OK), "Lambda could not start it"
    assert f"-m {MODULE}" in script.read_text()
    assert (tmp_path / MODULE.replace(".", "/") / "__main__.py").exists()


def test_the_streaming_function_outlives_its_streams(resources: Resources, resources_of: Synth) -> None:
    for found, seconds in ((resources, PROD.streaming_seconds), (resources_of(streaming_seconds=870), 870)):
        function = found.function("streaming")
        assert function["Environment"]["Variables"]["HEADRACE_SSE_SECONDS"] == str(seconds)
        assert seconds + 10 < function["Timeout"] <= 900


def test_the_streaming_door_can_be_left_out(resources_of: Synth) -> None:
    found = resources_of(streaming_door="false")
    kinds = {resource["Type"] for resource in found.by_id.values()}
    assert "AWS::Lambda::Url" not in kinds
    assert len(found.serving) == 7
    assert not [p for p in found.of("Lambda::Permission").values() if p["Properties"]["Principal"] == "*"]
    assert "StreamingUrl" not in found.outputs


def test_provisioned_instances_take_the_place_of_snapshots(resources_of: Synth) -> None:
    """Lambda refuses both at once."""
    found = resources_of(
        api_reserved_concurrency=50,
        api_provisioned_concurrency=5,
        streaming_reserved_concurrency=200,
        streaming_provisioned_concurrency=3,
    )
    for function, reserved, provisioned in (("api", 50, 5), ("streaming", 200, 3)):
        properties = found.function(function)
        assert properties["ReservedConcurrentExecutions"] == reserved
        assert "SnapStart" not in properties
        _, alias = found.one("Lambda::Alias", function.capitalize())
        assert alias["ProvisionedConcurrencyConfig"] == {"ProvisionedConcurrentExecutions": provisioned}
    alias_id, _ = found.one("Lambda::Alias", "Api")
    assert found.one("ApiGatewayV2::Integration", "Door")[1]["IntegrationUri"] == {"Ref": alias_id}
    url = found.one("Lambda::Url")[1]
    assert url["Qualifier"] == "live", "the URL would call instances that nobody keeps ready"


def test_a_domain_gets_a_certificate_a_mapping_and_a_record(resources_of: Synth) -> None:
    found = resources_of(domain_name="streams.example.com", certificate_arn=CERTIFICATE, hosted_zone_id="Z123")
    domain_id, domain = found.one("ApiGatewayV2::DomainName")
    assert domain["DomainName"] == "streams.example.com"
    (settings,) = domain["DomainNameConfigurations"]
    assert settings == {"CertificateArn": CERTIFICATE, "EndpointType": "REGIONAL", "SecurityPolicy": "TLS_1_2"}
    assert found.one("ApiGatewayV2::ApiMapping")[1]["DomainName"] == {"Ref": domain_id}
    _, record = found.one("Route53::RecordSet")
    assert (record["HostedZoneId"], record["Name"], record["Type"]) == ("Z123", "streams.example.com", "A")
    assert record["AliasTarget"]["DNSName"] == {"Fn::GetAtt": [domain_id, "RegionalDomainName"]}
    assert found.outputs["ApiUrl"]["Value"] == "https://streams.example.com"


def test_a_domain_without_a_zone_has_no_record(resources_of: Synth) -> None:
    found = resources_of(domain_name="streams.example.com", certificate_arn=CERTIFICATE)
    assert found.one("ApiGatewayV2::DomainName")
    assert "AWS::Route53::RecordSet" not in {resource["Type"] for resource in found.by_id.values()}


def test_each_route_of_sockets_calls_the_sockets_function(resources: Resources) -> None:
    routes = {key: one["Properties"] for key, one in resources.of("ApiGatewayV2::Route").items()}
    of_sockets = [route for key, route in routes.items() if key.startswith("WebSocket")]
    assert {route["RouteKey"] for route in of_sockets} == {"$connect", "$default", "$disconnect"}
    assert {route["AuthorizationType"] for route in of_sockets} == {"NONE"}, "the application checks the key"
    alias, _ = resources.one("Lambda::Alias", "Sockets")
    integrations = [one for key, one in resources.of("ApiGatewayV2::Integration").items() if "WebSocket" in key]
    assert len(integrations) == 3
    assert all(f'"{alias}"' in json.dumps(one["Properties"]["IntegrationUri"]) for one in integrations)
    _, function = resources.one("Lambda::Function", "Sockets")
    assert function["Handler"] == SOCKETS
    assert function["Environment"]["Variables"].keys() >= {"HEADRACE_RELAY_QUEUE_URL", "HEADRACE_API_KEYS_SECRET"}


def test_what_the_sockets_function_returns_to_a_message_goes_back(resources: Resources) -> None:
    key, _ = resources.one("ApiGatewayV2::Route", "WebSocketMessage")
    route = resources.by_id[key]["Properties"]
    _, answer = resources.one("ApiGatewayV2::RouteResponse")
    assert (route["RouteKey"], route["RouteResponseSelectionExpression"]) == ("$default", "$default")
    assert (answer["RouteId"], answer["RouteResponseKey"]) == ({"Ref": key}, "$default")


def test_only_the_relay_may_send_to_sockets_and_the_doors_of_http_tell_where_they_are(resources: Resources) -> None:
    sending = {
        key
        for key, policy in resources.of("IAM::Policy").items()
        if "execute-api:ManageConnections" in json.dumps(policy)
    }
    assert [key for key in sending if not key.startswith("RelayRole")] == []
    assert sending
    url = resources.outputs["SocketsUrl"]["Value"]
    for name in ("api", "streaming"):
        assert resources.function(name)["Environment"]["Variables"]["HEADRACE_SOCKETS_URL"] == url
    assert "wss://" in json.dumps(url)
    endpoint = resources.function("relay")["Environment"]["Variables"]["HEADRACE_SOCKETS_ENDPOINT"]
    assert json.dumps(endpoint) == json.dumps(url).replace("wss://", "https://")


def test_the_rate_of_sockets_is_limited(resources: Resources) -> None:
    _, stage = resources.one("ApiGatewayV2::Stage", "WebSocket")
    assert stage["DefaultRouteSettings"] == {
        "ThrottlingRateLimit": PROD.requests_per_second,
        "ThrottlingBurstLimit": PROD.request_burst,
    }
