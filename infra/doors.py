"""How requests reach the functions: an HTTP API in front of the api function (the buffered door), a Function URL whose
responses stream (the streaming door), and a WebSocket API.
"""

from __future__ import annotations

import json

import jsii
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_route53 as route53
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration, WebSocketLambdaIntegration
from constructs import Construct

from infra.environments import Environment

ROUTES = ("/", "/{proxy+}")
# No header is logged, since a header carries the key; no query string, since it may carry one too.
ACCESS_LOG_FIELDS = {
    "request_id": "$context.requestId",
    "route": "$context.routeKey",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "status": "$context.status",
    "response_bytes": "$context.responseLength",
    "latency_ms": "$context.responseLatency",
    # In the function's own log under `request_id`: its line of metrics there says whose key it was.
    "function_request_id": "$context.integration.requestId",
    # What became of the function, where the door answered in its place: 429, 503, or a result that it could not take.
    "function_status": "$context.integrationStatus",
    "function_latency_ms": "$context.integrationLatency",
    "function_error": "$context.integrationErrorMessage",
    "door_error": "$context.error.message",
    "source_ip": "$context.identity.sourceIp",
    "user_agent": "$context.identity.userAgent",
}


@jsii.implements(apigatewayv2.IAccessLogSettings)
class _AccessLog:
    """The access log's settings: one JSON line for each request. A class, because jsii requires an object here."""

    def __init__(self, log_group: logs.ILogGroup) -> None:
        self._destination = apigatewayv2.LogGroupLogDestination(log_group)
        self._format = apigateway.AccessLogFormat.custom(json.dumps(ACCESS_LOG_FIELDS))

    @property
    def destination(self) -> apigatewayv2.IAccessLogDestination:
        """Returns the log group that lines are written to."""
        return self._destination

    @property
    def format(self) -> apigateway.AccessLogFormat:
        """Returns the format of a line."""
        return self._format


class HttpDoor(Construct):
    """The buffered door: an HTTP API with rate limits, an access log and, if the environment has one, a domain name.
    The application itself checks keys, methods and CORS.

    It takes requests of up to 10 MB; as an event for the function a request may have 6 MB, so the application refuses
    bodies above 4.5 MB. It gives up after 30 s. `url` is where clients reach it.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, function: lambda_.IFunction, environment: Environment
    ) -> None:
        super().__init__(scope, construct_id)
        self.api = apigatewayv2.HttpApi(self, "Api", api_name=Stack.of(self).stack_name, create_default_stage=False)
        integration = HttpLambdaIntegration(
            "Function", function, payload_format_version=apigatewayv2.PayloadFormatVersion.VERSION_2_0
        )
        for path in ROUTES:
            self.api.add_routes(path=path, methods=[apigatewayv2.HttpMethod.ANY], integration=integration)
        self.access_log = logs.LogGroup(
            self, "AccessLog", retention=environment.log_retention, removal_policy=RemovalPolicy.DESTROY
        )
        self.stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigatewayv2.ThrottleSettings(
                rate_limit=environment.requests_per_second, burst_limit=environment.request_burst
            ),
            access_log_settings=_AccessLog(self.access_log),
        )
        self.url = self.api.api_endpoint
        if environment.domain_name:
            self._give_name(environment)

    def _give_name(self, environment: Environment) -> None:
        """Adds a custom domain to the API, sets `url` to it, and adds its DNS record if the hosted zone is known."""
        domain = apigatewayv2.DomainName(
            self,
            "Domain",
            domain_name=environment.domain_name,
            certificate=acm.Certificate.from_certificate_arn(self, "Certificate", environment.certificate_arn),
            security_policy=apigatewayv2.SecurityPolicy.TLS_1_2,
        )
        apigatewayv2.ApiMapping(self, "Mapping", api=self.api, domain_name=domain, stage=self.stage)
        self.url = f"https://{environment.domain_name}"
        if environment.hosted_zone_id:
            route53.CfnRecordSet(
                self,
                "Record",
                hosted_zone_id=environment.hosted_zone_id,
                name=environment.domain_name,
                type="A",
                alias_target=route53.CfnRecordSet.AliasTargetProperty(
                    dns_name=domain.regional_domain_name, hosted_zone_id=domain.regional_hosted_zone_id
                ),
            )


# Within the artifact; `functions/api/door/streaming/__init__.py` says why. Lambda has it start the process.
BOOTSTRAP = "functions/api/door/streaming/bootstrap"
WRAPPER = {"AWS_LAMBDA_EXEC_WRAPPER": f"/var/task/{BOOTSTRAP}"}
# What Lambda shows as the function's handler. Its own client, which would call it, is never started.
MODULE = "functions.api.door.streaming"


class StreamingDoor(Construct):
    """The streaming door: a public Function URL whose responses stream. The application checks keys and answers
    preflight requests, as behind the HTTP API.

    It has no rate limit of its own: what bounds it is the function's reserved concurrency.

    The function has no SnapStart. A runtime client must take part when a snapshot is restored, and Lambda documents
    that only for its own clients; this function uses another one.
    """

    def __init__(self, scope: Construct, construct_id: str, *, function: lambda_.IFunction) -> None:
        super().__init__(scope, construct_id)
        self.function_url = lambda_.FunctionUrl(
            self,
            "Url",
            function=function,
            auth_type=lambda_.FunctionUrlAuthType.NONE,
            invoke_mode=lambda_.InvokeMode.RESPONSE_STREAM,
        )
        self.url = self.function_url.url


# The function behind the WebSocket API, in the artifact of the api.
SOCKETS = "functions.api.sockets.handler.handler"
SOCKETS_STAGE = "v0"
CONNECTIONS = f"{SOCKETS_STAGE}/POST/@connections/*"  # after the id of the API: sending to any client
_ANY_MESSAGE = "$default"


class SocketDoor(Construct):
    """The WebSocket API. It holds the sockets, for two hours at most, and for ten minutes without a message. The function
    checks the key when a socket is opened, and what the key allows at each message; the relay sends messages to clients.

    It writes no access log: API Gateway would need a role for the whole account and region, which is not of one
    deployment. The function logs what fails.

    `url` is where clients open sockets, `endpoint` where the relay sends messages to them, `connections` the ARN of that.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, function: lambda_.IFunction, environment: Environment
    ) -> None:
        super().__init__(scope, construct_id)

        def route(name: str) -> apigatewayv2.WebSocketRouteOptions:
            return apigatewayv2.WebSocketRouteOptions(integration=WebSocketLambdaIntegration(name, function))

        self.api = apigatewayv2.WebSocketApi(
            self,
            "Api",
            api_name=f"{Stack.of(self).stack_name}-sockets",
            connect_route_options=route("Connect"),
            disconnect_route_options=route("Disconnect"),
        )
        message = apigatewayv2.WebSocketRoute(
            self,
            "Message",
            web_socket_api=self.api,
            route_key=_ANY_MESSAGE,
            integration=WebSocketLambdaIntegration("OnMessage", function),
        )
        # What the function returns goes back to the client. By hand, because the CDK gives this route and its response one
        # logical id.
        resource = message.node.default_child
        assert isinstance(resource, apigatewayv2.CfnRoute)
        resource.route_response_selection_expression = _ANY_MESSAGE
        apigatewayv2.CfnRouteResponse(
            self,
            "Answer",
            api_id=self.api.api_id,
            route_id=message.route_id,
            route_response_key=_ANY_MESSAGE,
        )
        self.stage = apigatewayv2.WebSocketStage(
            self,
            "Stage",
            web_socket_api=self.api,
            stage_name=SOCKETS_STAGE,
            auto_deploy=True,
            throttle=apigatewayv2.ThrottleSettings(
                rate_limit=environment.requests_per_second, burst_limit=environment.request_burst
            ),
        )
        self.url = self.stage.url
        self.endpoint = self.stage.callback_url
        self.connections = Stack.of(self).format_arn(
            service="execute-api",
            resource=self.api.api_id,
            resource_name=CONNECTIONS,
        )
