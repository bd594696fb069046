"""Laws of the emulated WebSocket API: events like those of API Gateway, and `/@connections` on the port of the AWS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from local import socket_door
from local.connections import MAX_MESSAGE_BYTES
from local.environment import client
from tests.conformance.contract.client import eventually
from tests.local.fake_app import post
from tests.support.emulated_cloud import DevServer, dev_server

FAKE = {"HEADRACE_DEV_SOCKETS": "tests.local.fake_app.sockets"}


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with dev_server("--app", "tests.local.fake_app:create_app", "--api-processes", "2", environment=FAKE) as running:
        yield running


def opened(server: DevServer, path: str = "/v0/ws", **headers: str) -> ClientConnection:
    url = server.url.replace("http://", "ws://") + path
    return connect(url, additional_headers=headers, proxy=None, compression=None)


def asked(socket: ClientConnection, text: str | bytes) -> dict[str, Any]:
    """Sends a message; returns the answer to it."""
    socket.send(text)
    answer: dict[str, Any] = json.loads(socket.recv(timeout=10))
    return answer


def test_a_message_arrives_as_the_event_of_its_connection(server: DevServer) -> None:
    with opened(server) as socket:
        first, second = (asked(socket, text)["event"] for text in ("one", "two ü"))
    assert (first["body"], second["body"]) == ("one", "two ü")
    assert first["isBase64Encoded"] is False
    contexts = first["requestContext"], second["requestContext"]
    assert {one["routeKey"] for one in contexts} == {"$default"}
    assert {one["eventType"] for one in contexts} == {"MESSAGE"}
    assert len({one["connectionId"] for one in contexts}) == 1
    assert len({one["messageId"] for one in contexts}) == 2
    assert contexts[0]["connectedAt"] <= contexts[0]["requestTimeEpoch"]


def test_a_binary_message_arrives_encoded(server: DevServer) -> None:
    with opened(server) as socket:
        event = asked(socket, b"\xff\x00")["event"]
    assert (event["body"], event["isBase64Encoded"]) == ("/wA=", True)


def test_a_socket_stays_with_its_process_and_others_take_turns(server: DevServer) -> None:
    with opened(server) as first, opened(server) as second:
        pids = [{asked(socket, "x")["pid"] for _ in range(3)} for socket in (first, second)]
    assert [len(found) for found in pids] == [1, 1]
    assert pids[0] != pids[1]


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_the_function_refuses_a_socket_with_its_status(server: DevServer, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, opened(server, **{"X-Status": str(status)}):
        pass
    assert refused.value.response.status_code == status


def test_no_other_path_is_a_socket(server: DevServer) -> None:
    with pytest.raises(InvalidStatus) as refused, opened(server, "/v0/other"):
        pass
    assert refused.value.response.status_code == 404


def test_what_is_posted_to_a_connection_reaches_its_client(server: DevServer) -> None:
    with opened(server) as first, opened(server) as second:
        target = asked(second, "x")["event"]["requestContext"]["connectionId"]
        asked(first, f"post {target} from the other")
        assert second.recv(timeout=10) == "from the other"
        post(server.state["endpoint"], target, "from outside")
        assert second.recv(timeout=10) == "from outside"


def test_a_closed_connection_is_gone(server: DevServer) -> None:
    with opened(server) as socket:
        target = asked(socket, "x")["event"]["requestContext"]["connectionId"]

    def outcome() -> str:
        try:
            post(server.state["endpoint"], target, "late")
        except ClientError as exc:
            return str(exc.response["Error"]["Code"])
        return "sent"

    eventually(outcome, lambda found: found == "GoneException")


def test_a_connection_can_be_closed_from_behind(server: DevServer) -> None:
    with opened(server) as socket:
        target = asked(socket, "x")["event"]["requestContext"]["connectionId"]
        client("apigatewaymanagementapi", server.state["endpoint"]).delete_connection(ConnectionId=target)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001


def test_the_function_hears_of_the_end_of_a_socket(server: DevServer) -> None:
    with opened(server) as socket:
        mine = asked(socket, "x")["pid"]
        socket.close(4321)

    def is_told() -> bool:
        with opened(server) as other:
            answer = asked(other, "x")
        return answer["pid"] == mine and 4321 in answer["ended"]

    eventually(is_told, bool)


def test_a_message_without_an_answer_gets_none(server: DevServer) -> None:
    with opened(server) as socket:
        socket.send("silent")
        assert asked(socket, "loud")["event"]["body"] == "loud"


def test_a_failure_of_the_function_is_told_and_the_socket_stays(server: DevServer) -> None:
    with opened(server) as socket:
        told = asked(socket, "fail")
        assert told["message"] == "Internal server error"
        assert asked(socket, "x")["event"]["requestContext"]["connectionId"] == told["connectionId"]


def test_a_message_may_have_128_kib_and_no_more(server: DevServer) -> None:
    with opened(server) as socket:
        assert len(asked(socket, "x" * (MAX_MESSAGE_BYTES - 2048))["event"]["body"]) == MAX_MESSAGE_BYTES - 2048
    with opened(server) as socket, pytest.raises(ConnectionClosed) as closed:
        asked(socket, "x" * (MAX_MESSAGE_BYTES + 1))
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_more_than_128_kib_cannot_be_posted(server: DevServer) -> None:
    management = client("apigatewaymanagementapi", server.state["endpoint"])
    with opened(server) as socket:
        target = asked(socket, "x")["event"]["requestContext"]["connectionId"]
        with pytest.raises(management.exceptions.PayloadTooLargeException):
            management.post_to_connection(ConnectionId=target, Data=b"x" * (MAX_MESSAGE_BYTES + 1))


def test_connections_are_only_on_the_port_of_the_aws_and_not_for_pages(server: DevServer) -> None:
    with opened(server) as socket:
        target = asked(socket, "x")["event"]["requestContext"]["connectionId"]
        path = f"/@connections/{target}"
        assert httpx.post(server.state["endpoint"] + path, headers={"Origin": "http://localhost"}).status_code == 400
        assert httpx.post(server.url + path, content=b"seen").json()["method"] == "POST"  # the application's own
        attach = server.state["endpoint"].replace("http://", "ws://") + "/@connections/mine"
        with pytest.raises(InvalidStatus), connect(attach, origin="http://localhost", proxy=None):  # type: ignore[arg-type]
            pass
        post(server.state["endpoint"], target, "last")
        assert socket.recv(timeout=10) == "last"


@pytest.mark.parametrize("limit", ["idle_s", "life_s"])
def test_a_socket_ends_when_its_time_is_over(limit: str) -> None:
    async def run() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        attached = asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            if not attached.is_set():
                attached.set()
                return {"type": "websocket.connect"}
            await asyncio.Event().wait()
            raise AssertionError("nothing is ever received")

        async def gate(scope: Any, receive_there: Any, send_there: Any) -> None:
            raise AssertionError("no other request")

        from websockets.asyncio.server import serve

        async with serve(lambda link: link.wait_closed(), "127.0.0.1", 0) as aws:
            port = next(iter(aws.sockets)).getsockname()[1]
            door = socket_door.SocketDoor(
                gate, "tests.local.fake_app.sockets", f"http://127.0.0.1:{port}", **{limit: 0.05}
            )
            scope = {"type": "websocket", "path": socket_door.SOCKET_PATH, "headers": []}
            await asyncio.wait_for(door(scope, receive, send), 10)
        return sent

    assert asyncio.run(run()) == [
        {"type": "websocket.accept"},
        {"type": "websocket.close", "code": 1001},
    ]
