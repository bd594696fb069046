"""One function calls another in the emulator, through the client that it has on AWS."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import httpx
import msgspec
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from local.access import AccessDoor, Policies, Statement, noted
from local.access_calls import access_key, arn
from local.deployment import Deployment, Function
from local.lambda_api import LambdaApi
from local.lambda_runtime import FunctionFailed, Invoker
from tests.support.emulated_cloud import emulated_cloud

POSTS = Function("PostFunction", "posts.handler")
LIVE = arn("lambda", "function:PostLive")
ROLE = "CallerRole"


class Instance:
    """An instance that answers with what it was asked; or waits, or fails."""

    def __init__(self, name: str, meeting: threading.Barrier) -> None:
        self.name = name
        self._meeting = meeting

    def invoke(self, event: Any) -> tuple[Any, str]:
        if event == "meet":
            self._meeting.wait(10)
        if event == "fail":
            raise FunctionFailed("ValueError: no", "r1")
        return {"instance": self.name, "event": event}, "r1"


@pytest.fixture
def made() -> list[str]:
    """Returns the names of the instances that were made."""
    return []


@pytest.fixture
def api(tmp_path: Path, made: list[str]) -> Iterator[LambdaApi]:
    meeting = threading.Barrier(2)

    def instance(function: Function, name: str) -> Invoker:
        made.append(name)
        return Instance(name, meeting)

    policies = tmp_path / "policies.json"
    may = Statement("CallPosts", "Allow", ("lambda:InvokeFunction",), (LIVE,))
    policies.write_bytes(msgspec.json.encode(Policies({ROLE: (may,)})))
    deployment = Deployment("", {}, {POSTS.name: POSTS}, {"PostLive": POSTS.name})
    server = LambdaApi(deployment, instance, door=AccessDoor(policies, tmp_path / "record"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def client(api: LambdaApi, role: str = ROLE) -> Any:
    return boto3.client(
        "lambda",
        endpoint_url=api.url,
        region_name="us-east-1",
        aws_access_key_id=access_key(role),
        aws_secret_access_key="none",
        config=Config(retries={"total_max_attempts": 1}),
    )


def test_a_function_is_called_by_the_arn_of_its_alias_and_its_answer_is_returned(
    api: LambdaApi, tmp_path: Path, made: list[str]
) -> None:
    for event in ({"a": 1}, ["ä"]):
        answer = client(api).invoke(FunctionName=LIVE, Payload=json.dumps(event).encode())
        assert "FunctionError" not in answer
        assert json.loads(answer["Payload"].read())["event"] == event
    assert made == ["PostFunction-1"]
    assert {(note.call.action, note.call.resource, note.allowed) for note in noted(tmp_path / "record")} == {
        ("lambda:InvokeFunction", LIVE, True)
    }


def test_a_function_that_fails_says_so_in_its_answer(api: LambdaApi) -> None:
    answer = client(api).invoke(FunctionName=LIVE, Payload=b'"fail"')
    assert answer["FunctionError"] == "Unhandled"
    assert json.loads(answer["Payload"].read()) == {"errorMessage": "ValueError: no"}


def test_calls_at_once_have_instances_of_their_own(api: LambdaApi, made: list[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda _: client(api).invoke(FunctionName=LIVE, Payload=b'"meet"'), range(2))
        said = {json.loads(answer["Payload"].read())["instance"] for answer in answers}
    assert said == set(made) == {"PostFunction-1", "PostFunction-2"}


@pytest.mark.parametrize(
    ("role", "name", "code"),
    [
        ("OtherRole", LIVE, "AccessDeniedException"),
        (ROLE, "PostFunction", "AccessDeniedException"),
        ("", "Nothing", "ResourceNotFoundException"),
    ],
)
def test_a_call_that_lambda_would_refuse_is_refused(api: LambdaApi, role: str, name: str, code: str) -> None:
    calls = client(api, role)
    if not role:  # a person, who may do everything
        calls._request_signer._credentials.access_key = "AKIAPERSON"
    with pytest.raises(ClientError) as caught:
        calls.invoke(FunctionName=name, Payload=b"{}")
    assert caught.value.response["Error"]["Code"] == code


def test_a_web_page_calls_nothing(api: LambdaApi, made: list[str]) -> None:
    path = f"{api.url}/2015-03-31/functions/PostFunction/invocations"
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        assert httpx.post(path, headers=headers, content=b"{}", trust_env=False).status_code == 403
    assert made == []


def test_the_template_names_the_function_that_an_alias_means_and_the_secrets() -> None:
    with emulated_cloud() as cloud:
        deployment = cloud.deployment
        (alias,) = (alias for alias, function in deployment.aliases.items() if function.startswith("Webhook"))
        assert deployment.functions[deployment.aliases[alias]].handler == "functions.webhook.handler.handler"
        settings = deployment.settings()
        assert "HEADRACE_API_KEYS_SECRET" not in settings
        secret = settings["HEADRACE_SIGNING_KEYS_SECRET"]
        assert len(cloud.client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"]) == 64
