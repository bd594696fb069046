"""The streaming door: a second function with the api's code, behind a Function URL at which responses stream."""

from __future__ import annotations

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

# Within the artifact; `functions/api/door/streaming/__init__.py` says why. Lambda has it start the process.
BOOTSTRAP = "functions/api/door/streaming/bootstrap"
WRAPPER = {"AWS_LAMBDA_EXEC_WRAPPER": f"/var/task/{BOOTSTRAP}"}
# What Lambda shows as the function's handler. Its own client, which would call it, is never started.
MODULE = "functions.api.door.streaming"


class StreamingDoor(Construct):
    """A public URL; the application checks keys and answers preflights, as behind the HTTP API.

    It has no rate limit of its own: what bounds it is the function's reserved concurrency.

    The function has no SnapStart. That would need a published version, to whose alias the URL can lead, and excludes
    provisioned concurrency; neither is in the way. But a runtime client takes part in being restored, and Lambda documents
    that for its own clients alone.
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
