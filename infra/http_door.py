"""The public door: an HTTP API that hands every request, unread, to the api function."""

from __future__ import annotations

import json

import jsii
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from constructs import Construct

ROUTES = ("/", "/{proxy+}")
# No header is logged, since a header carries the key; no query string, since it may carry one too.
ACCESS_LOG_FIELDS = {
    "request_id": "$context.requestId",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "status": "$context.status",
    "response_bytes": "$context.responseLength",
    "latency_ms": "$context.responseLatency",
    "function_latency_ms": "$context.integrationLatency",
    "function_error": "$context.integrationErrorMessage",
    "source_ip": "$context.identity.sourceIp",
    "user_agent": "$context.identity.userAgent",
}


@jsii.implements(apigatewayv2.IAccessLogSettings)
class _AccessLog:
    """One JSON line for each request. jsii wants an object here."""

    def __init__(self, log_group: logs.ILogGroup) -> None:
        self._destination = apigatewayv2.LogGroupLogDestination(log_group)
        self._format = apigateway.AccessLogFormat.custom(json.dumps(ACCESS_LOG_FIELDS))

    @property
    def destination(self) -> apigatewayv2.IAccessLogDestination:
        """Where lines go."""
        return self._destination

    @property
    def format(self) -> apigateway.AccessLogFormat:
        """What a line holds."""
        return self._format


class HttpDoor(Construct):
    """Authorization, CORS and methods are the application's business: the door adds rate limits and a log."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: lambda_.IFunction,
        log_retention: logs.RetentionDays,
        requests_per_second: int,
        request_burst: int,
    ) -> None:
        super().__init__(scope, construct_id)
        self.api = apigatewayv2.HttpApi(self, "Api", api_name=Stack.of(self).stack_name, create_default_stage=False)
        integration = HttpLambdaIntegration("Function", function)
        for path in ROUTES:
            self.api.add_routes(path=path, methods=[apigatewayv2.HttpMethod.ANY], integration=integration)
        self.access_log = logs.LogGroup(
            self, "AccessLog", retention=log_retention, removal_policy=RemovalPolicy.DESTROY
        )
        self.stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigatewayv2.ThrottleSettings(rate_limit=requests_per_second, burst_limit=request_burst),
            access_log_settings=_AccessLog(self.access_log),
        )
