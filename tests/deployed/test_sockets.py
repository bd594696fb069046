"""The WebSocket through the deployed WebSocket API, its function, and the relay."""

from __future__ import annotations

import uuid

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from infra.doors import SOCKETS_STAGE
from tests.conformance.contract.client import Api
from tests.conformance.topics.client import Server
from tests.conformance.topics.sockets import Socket, data_in, open_at
from tests.deployed.deploy import Stack


def url_of(stack: Stack) -> str:
    """Returns where the emulator has the WebSocket API: at its own port, under a path."""
    id_ = stack.physical("AWS::ApiGatewayV2::Api", holding="WebSocket")
    return f"{stack.emulator.endpoint.replace('http', 'ws', 1)}/_aws/execute-api/{id_}/{SOCKETS_STAGE}"


def test_a_socket_publishes_and_is_pushed_what_is_appended(stack: Stack, warm_api: Api) -> None:
    name = f"room-{uuid.uuid4().hex[:12]}"
    with open_at(url_of(stack), warm_api.key) as socket:
        assert socket.ask("ping")["op"] == "pong"
        assert socket.publish(name, "from the socket")["last_seq"] == 1
        assert socket.subscribe(name)["topics"][name]["head_seq"] == 1
        assert data_in(socket.caught_up()) == ["from the socket"]
        with httpx.Client(timeout=60, trust_env=False) as http:
            answer = Server(warm_api.url, http, warm_api.key).send(
                "POST", f"/v0/topics/{name}", {"records": [{"data": "over HTTP"}]}
            )
            assert answer.status_code == 200, answer.text
        assert data_in([until_record(socket)]) == ["over HTTP"]
        assert socket.ask("unsubscribe", topic=name)["op"] == "unsubscribed"


def until_record(socket: Socket) -> dict[str, object]:
    """Returns the next message with a record that was not there before."""
    return socket.until(lambda message: message["op"] == "record" and message["to_seq"] > 1)[-1]


def test_a_socket_without_a_key_is_not_opened(stack: Stack) -> None:
    with pytest.raises(InvalidStatus) as refusal, open_at(url_of(stack), None):
        pass
    assert refusal.value.response.status_code in (401, 403)


def test_the_door_of_http_tells_where_sockets_are(stack: Stack, warm_api: Api) -> None:
    answer = httpx.get(f"{warm_api.url}/v0/ws", headers={"Authorization": f"Bearer {warm_api.key}"}, trust_env=False)
    assert answer.status_code == 426, answer.text
    assert stack.outputs["SocketsUrl"].lower() in answer.json()["error"]["message"]
