"""The port through which clients of open sockets are sent messages."""

from __future__ import annotations

from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from headrace.errors import StoreError, StoreThrottled


class Connections(Protocol):
    """The open sockets of a deployment, wherever they are held."""

    def post(self, connection_id: str, data: bytes) -> bool:
        """Sends a message to a client. Returns False if the socket has ended.

        Raises:
            StoreThrottled: too many are sent; this one was not.
            StoreError: it may have been sent.
        """


class ApiGatewayConnections:
    """The port on API Gateway's Management API.

    Args:
        client: a boto3 client of `apigatewaymanagementapi`.
    """

    def __init__(self, client: Any) -> None:
        self._post = client.post_to_connection

    def post(self, connection_id: str, data: bytes) -> bool:
        """Sends a message to a client. Returns False if the socket has ended."""
        try:
            self._post(ConnectionId=connection_id, Data=data)
        except ClientError as exc:
            match exc.response["Error"]["Code"]:
                case "GoneException":
                    return False
                case "LimitExceededException" | "TooManyRequestsException":
                    raise StoreThrottled("API Gateway refused a message for load") from exc
            raise StoreError(f"a message was not sent: {exc}") from exc
        except BotoCoreError as exc:
            raise StoreError(f"a message was perhaps not sent: {exc}") from exc
        return True


class MemoryConnections:
    """The port in memory: keeps what is posted to the sockets that are open."""

    def __init__(self) -> None:
        self.posted: dict[str, list[bytes]] = {}

    def post(self, connection_id: str, data: bytes) -> bool:
        """Keeps a message for a client. Returns False if the socket has ended."""
        if connection_id not in self.posted:
            return False
        self.posted[connection_id].append(data)
        return True
