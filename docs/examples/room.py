"""Two members of a room, each with one WebSocket: what one says, the other hears (docs/sockets.md).

uv run python docs/examples/room.py ws://127.0.0.1:8787/v0/ws
"""

from __future__ import annotations

import json
import sys

from websockets.sync.client import ClientConnection, connect

ROOM = "room:green"


def ask(socket: ClientConnection, **command: object) -> dict[str, object]:
    """Sends a command, and returns its answer."""
    socket.send(json.dumps({"request_id": 1, **command}))
    while (message := json.loads(socket.recv(timeout=20))).get("request_id") != 1:
        pass  # a push: it may come before the answer
    return message


def main(url: str) -> None:
    """Lets Ada say something, and Bob hear it."""
    with connect(url) as ada, connect(url) as bob:
        print(ask(ada, op="publish", topic=ROOM, node="ada", records=[{"data": {"says": "hello"}}])["op"])
        print(ask(bob, op="subscribe", topic=ROOM, node="bob")["op"])
        seq = 0
        while seq == 0:
            message = json.loads(bob.recv(timeout=20))
            if message["op"] == "record":
                for record in message["records"]:
                    if record["$seq"] > seq:  # a message may come twice
                        seq = record["$seq"]
                        print(record["$node"], record["data"]["says"])


if __name__ == "__main__":
    main(sys.argv[1])
