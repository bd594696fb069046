"""The emulator's IAM: what a request asks for, what a policy says to it, and who is turned away."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import msgspec
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from headrace.settings import child_environment
from local.access import (
    AccessDoor,
    Call,
    Policies,
    Statement,
    UnknownPolicy,
    is_allowed,
    noted,
    read_policies,
    read_statement,
)
from local.access_calls import (
    access_key,
    arn,
    call_of_absence,
    job_calls,
    json_calls,
    key_calls,
    object_calls,
    role_of,
)
from local.environment import client
from local.supervisor import Supervisor
from local.template import UnusableTemplate, read_template

TABLE = arn("dynamodb", "table/t")
READ = Statement("Read", "Allow", ("s3:Get*",), ("arn:aws:s3:::b/logs/????/*",))


def asked(operation: str, **content: Any) -> list[Call]:
    return json_calls(f"DynamoDB_20120810.{operation}", json.dumps(content).encode())


def of_objects(method: str, uri: str, body: bytes = b"", **headers: str) -> list[Call]:
    return object_calls(method, uri, headers, body)


@pytest.mark.parametrize(
    ("resource", "is_meant"),
    [
        ("arn:aws:s3:::b/logs/abcd/x", True),
        ("arn:aws:s3:::b/logs/abcd/x/y", True),  # a star reaches across slashes
        ("arn:aws:s3:::b/logs/abc/x", False),  # a question mark is one character
        ("arn:aws:s3:::b/LOGS/abcd/x", False),
        ("arn:aws:s3:::b/logs/abcd", False),
        ("x-arn:aws:s3:::b/logs/abcd/x", False),
    ],
)
def test_a_pattern_is_a_whole_resource(resource: str, is_meant: bool) -> None:
    assert is_allowed([READ], Call("s3:GetObject", resource)) is is_meant


def test_actions_are_compared_without_case() -> None:
    assert is_allowed([READ], Call("S3:getobject", "arn:aws:s3:::b/logs/abcd/x"))
    assert not is_allowed([READ], Call("s3:PutObject", "arn:aws:s3:::b/logs/abcd/x"))


def test_a_deny_outweighs_every_allow() -> None:
    deny = Statement("No", "Deny", ("s3:GetObject",), ("*",))
    assert not is_allowed([READ, deny], Call("s3:GetObject", "arn:aws:s3:::b/logs/abcd/x"))


def test_a_condition_holds_only_for_a_key_that_is_there() -> None:
    document = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "r"}
    lent = read_statement({**document, "Condition": {"StringEquals": {"iam:PassedToService": ["a", "b"]}}})
    assert is_allowed([lent], Call("iam:PassRole", "r", (("iam:PassedToService", "b"),)))
    assert not is_allowed([lent], Call("iam:PassRole", "r", (("iam:PassedToService", "c"),)))
    assert not is_allowed([lent], Call("iam:PassRole", "r"))


def test_a_condition_may_be_a_pattern_only_where_it_says_so() -> None:
    document = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "b"}
    listed = read_statement({**document, "Condition": {"StringLike": {"s3:prefix": "code*"}}})
    assert is_allowed([listed], Call("s3:ListBucket", "b", (("s3:prefix", "code/x"),)))
    assert not is_allowed([listed], Call("s3:ListBucket", "b", (("s3:prefix", "logs/"),)))
    with pytest.raises(UnknownPolicy):
        read_statement({**document, "Condition": {"StringEquals": {"s3:prefix": "code*"}}})


@pytest.mark.parametrize("unknown", [{"Condition": {"Bool": {"a": "b"}}}, {"NotAction": "s3:*"}, {"Principal": "*"}])
def test_what_is_not_evaluated_is_not_guessed_at(unknown: dict[str, Any]) -> None:
    with pytest.raises(UnknownPolicy):
        read_statement({"Effect": "Allow", "Action": "s3:*", "Resource": "*", **unknown})


def test_a_transaction_asks_for_each_part_and_a_batch_for_each_table() -> None:
    parts = [{"Put": {"TableName": "t", "Item": {}}}, {"ConditionCheck": {"TableName": "u", "Key": {}}}]
    parts += [{"Update": {"TableName": "t"}}, {"Delete": {"TableName": "t"}}]
    assert asked("TransactWriteItems", TransactItems=parts) == [
        Call("dynamodb:PutItem", TABLE),
        Call("dynamodb:ConditionCheckItem", arn("dynamodb", "table/u")),
        Call("dynamodb:UpdateItem", TABLE),
        Call("dynamodb:DeleteItem", TABLE),
    ]
    assert asked("TransactGetItems", TransactItems=[{"Get": {"TableName": "t"}}]) == [Call("dynamodb:GetItem", TABLE)]
    assert asked("BatchWriteItem", RequestItems={"t": [], "u": []}) == [
        Call("dynamodb:BatchWriteItem", TABLE),
        Call("dynamodb:BatchWriteItem", arn("dynamodb", "table/u")),
    ]


def test_a_query_of_an_index_asks_for_the_index() -> None:
    assert asked("Query", TableName="t") == [Call("dynamodb:Query", TABLE)]
    assert asked("Query", TableName="t", IndexName="due") == [Call("dynamodb:Query", f"{TABLE}/index/due")]


def test_requests_of_queues_and_secrets() -> None:
    queue = json.dumps({"QueueUrl": "http://127.0.0.1:1/123456789012/q", "Entries": []}).encode()
    assert json_calls("AmazonSQS.SendMessageBatch", queue) == [Call("sqs:SendMessage", arn("sqs", "q"))]
    secret = arn("secretsmanager", "secret:s")
    body = json.dumps({"SecretId": secret}).encode()
    assert json_calls("secretsmanager.GetSecretValue", body) == [Call("secretsmanager:GetSecretValue", secret)]


def test_requests_of_objects() -> None:
    bucket, key = "arn:aws:s3:::b", "arn:aws:s3:::b/logs/a b"
    assert of_objects("GET", "/b/logs/a%20b?x-id=GetObject") == [Call("s3:GetObject", key)]
    assert of_objects("HEAD", "/b/logs/a%20b") == [Call("s3:GetObject", key)]
    assert of_objects("PUT", "/b/logs/a%20b") == [Call("s3:PutObject", key)]
    assert of_objects("PUT", "/b/logs/a%20b?partNumber=1&uploadId=u") == [Call("s3:PutObject", key)]
    assert of_objects("DELETE", "/b/logs/a%20b") == [Call("s3:DeleteObject", key)]
    assert of_objects("DELETE", "/b/logs/a%20b?uploadId=u") == [Call("s3:AbortMultipartUpload", key)]
    listing = of_objects("GET", "/b?list-type=2&prefix=logs%2F")
    assert listing == [Call("s3:ListBucket", bucket, (("s3:prefix", "logs/"),))]
    body = b'<Delete xmlns="x"><Object><Key>one</Key></Object><Object><Key>two</Key></Object></Delete>'
    doomed = of_objects("POST", "/b?delete", body)
    assert doomed == [Call("s3:DeleteObject", f"{bucket}/one"), Call("s3:DeleteObject", f"{bucket}/two")]
    assert call_of_absence([Call("s3:GetObject", key)]) == [Call("s3:ListBucket", bucket)]
    assert call_of_absence([Call("s3:DeleteObject", key)]) == []


def test_a_job_run_lends_its_role() -> None:
    application = arn("emr-serverless", "/applications/a1")
    start, lent = job_calls("POST", "/applications/a1/jobruns", b'{"executionRoleArn": "role"}')
    assert start == Call("emr-serverless:StartJobRun", application)
    assert lent == Call("iam:PassRole", "role", (("iam:PassedToService", "emr-serverless.amazonaws.com"),))
    (look,) = job_calls("GET", "/applications/a1/jobruns/r1", b"")
    assert look == Call("emr-serverless:GetJobRun", f"{application}/jobruns/r1")
    tagged = job_calls("POST", "/applications/a1/jobruns", b'{"executionRoleArn": "role", "tags": {"a": "b"}}')
    assert Call("emr-serverless:TagResource", application) in tagged


@pytest.mark.parametrize(
    "calls",
    [
        asked("ListTables"),
        json_calls("AmazonSQS.ListQueues", b"{}"),
        json_calls("Kinesis_20131202.PutRecord", b"{}"),
        of_objects("GET", "/b?versions"),
        of_objects("PUT", "/b/key?acl"),
        of_objects("PUT", "/b/key", **{"x-amz-copy-source": "/b/other"}),
        job_calls("POST", "/applications", b"{}"),
    ],
)
def test_what_no_function_is_known_to_ask_is_allowed_by_no_policy(calls: list[Call]) -> None:
    everything = Statement("All", "Allow", ("s3:*", "dynamodb:*", "sqs:*", "emr-serverless:*"), ("*",))
    assert [call.action for call in calls] == ["unknown"]
    assert not is_allowed([everything], calls[0])


def test_a_store_asks_for_the_key_by_what_it_does() -> None:
    (read,) = key_calls(Call("s3:GetObject", "o"), "key")
    assert read == Call("kms:Decrypt", "key", (("kms:ViaService", "s3.us-east-1.amazonaws.com"),))
    assert [call.action for call in key_calls(Call("s3:PutObject", "o"), "key")] == ["kms:GenerateDataKey"]
    assert {call.action for call in key_calls(Call("dynamodb:Query", "t"), "key")} >= {"kms:Decrypt", "kms:Encrypt"}
    assert key_calls(Call("sqs:SendMessage", "q"), "key") == []


def test_only_processes_that_act_in_a_role_are_asked(tmp_path: Path) -> None:
    policies, record = tmp_path / "policies.json", tmp_path / "calls.jsonl"
    door = AccessDoor(policies, record)
    policies.write_bytes(msgspec.json.encode(Policies({"Reader": (READ,)})))
    allowed, refused = Call("s3:GetObject", "arn:aws:s3:::b/logs/abcd/x"), Call("s3:PutObject", "arn:aws:s3:::b/x")

    def signed(identity: str) -> str:
        return f"AWS4-HMAC-SHA256 Credential={identity}/20261121/us-east-1/s3/aws4_request, SignedHeaders=host"

    assert role_of(signed("AKIAHEADRACEEMULATOR")) is None
    assert door.denied(signed("AKIAHEADRACEEMULATOR"), lambda: pytest.fail("nobody needs to know")) is None
    reader = signed(access_key("Reader"))
    for _ in range(2):
        assert door.denied(reader, lambda: [allowed]) is None
        assert door.denied(reader, lambda: [allowed, refused]) == (
            "Reader is not authorized to perform s3:PutObject on resource arn:aws:s3:::b/x"
        )
    assert door.denied(signed(access_key("Stranger")), lambda: [allowed]) is not None
    assert [(one.role, one.call, one.allowed) for one in noted(record)] == [
        ("Reader", allowed, True),
        ("Reader", refused, False),
        ("Stranger", allowed, False),
    ]


def test_the_policies_of_the_template_are_read_whole() -> None:
    resources = read_template()["Resources"]
    resolved: dict[str, str] = {}
    with pytest.raises(UnknownPolicy, match="does not have"):
        read_policies(resources, resolved)  # tables, queues and bucket are not there
    hidden = {"R": {"Type": "AWS::IAM::Role", "Properties": {"ManagedPolicyArns": ["arn:aws:iam::aws:policy/Any"]}}}
    with pytest.raises(UnknownPolicy, match="R: only"):
        read_policies(hidden, resolved)
    assert issubclass(UnusableTemplate, ValueError)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields a running store whose role `Reader` may read objects, and `Looker` list the bucket, too."""
    policies = tmp_path_factory.mktemp("guarded") / "policies.json"
    read = Statement("Read", "Allow", ("s3:GetObject",), ("arn:aws:s3:::bucket/*",))
    see = Statement("See", "Allow", ("s3:ListBucket",), ("arn:aws:s3:::bucket",))
    policies.write_bytes(msgspec.json.encode(Policies({"Reader": (read,), "Looker": (read, see)})))
    with Supervisor() as supervisor:
        arguments = ["local.moto_server", "--lifeline", "--policies", str(policies)]
        store = supervisor.start("aws", arguments, child_environment(os.environ))
        endpoint = store.wait_until_ready().split(" ", 1)[1]
        client("s3", endpoint).create_bucket(Bucket="bucket")
        client("s3", endpoint).put_object(Bucket="bucket", Key="k", Body=b"data")
        yield endpoint


def acting(service: str, endpoint: str, role: str) -> Any:
    """Returns a client that signs as a role."""
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=access_key(role),
        aws_secret_access_key="none",
        config=config,
    )


def refusal(call: Any, **arguments: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    answer = refused.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def test_a_store_refuses_as_aws_does(guarded: str) -> None:
    s3 = acting("s3", guarded, "Reader")
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"data"
    assert refusal(s3.put_object, Bucket="bucket", Key="k", Body=b"other") == ("AccessDenied", 403)
    assert refusal(s3.list_objects_v2, Bucket="bucket") == ("AccessDenied", 403)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"data"
    dynamodb = acting("dynamodb", guarded, "Reader")
    assert refusal(dynamodb.get_item, TableName="t", Key={"k": {"S": "v"}}) == ("AccessDeniedException", 400)
    sqs = acting("sqs", guarded, "Reader")
    asked_of = f"{guarded}/123456789012/q"
    assert refusal(sqs.send_message, QueueUrl=asked_of, MessageBody="m") == ("AccessDeniedException", 400)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:5173"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
    ],
)
def test_a_store_serves_no_web_page(guarded: str, headers: dict[str, str], status: int) -> None:
    signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=x/20261121/us-east-1/s3/aws4_request, SignedHeaders=host"}
    assert httpx.get(f"{guarded}/bucket/k", headers={**signed, **headers}).status_code == status


def test_an_object_is_absent_only_for_who_may_list_the_bucket(guarded: str) -> None:
    for method in ("get_object", "head_object"):
        code, status = refusal(getattr(acting("s3", guarded, "Reader"), method), Bucket="bucket", Key="absent")
        assert status == 403, code
        code, status = refusal(getattr(acting("s3", guarded, "Looker"), method), Bucket="bucket", Key="absent")
        assert status == 404, code
