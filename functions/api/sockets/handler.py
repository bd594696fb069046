"""The Lambda entry of the function behind the WebSocket API: its routes are `$connect`, `$default` and `$disconnect`."""

from __future__ import annotations

from typing import Any

from functions.api.context import open_context
from functions.api.sockets.sockets import Sockets
from functions.wiring import make_logger, spare_start_up

logger = make_logger("api")
_sockets = Sockets(open_context())
spare_start_up()


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Handles one event of a socket, and returns what API Gateway expects: the status of a handshake, or the answer to a
    message.
    """
    about = event["requestContext"]
    connection_id = about["connectionId"]
    logger.append_keys(request_id=getattr(context, "aws_request_id", None), connection_id=connection_id)
    match about["routeKey"]:
        case "$connect":
            headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
            return {"statusCode": _sockets.connect(connection_id, headers)}
        case "$disconnect":
            _sockets.disconnect(connection_id)
            return {"statusCode": 200}
    text = None if event.get("isBase64Encoded") else (event.get("body") or "").encode(errors="surrogatepass")
    return {"statusCode": 200, "body": _sockets.receive(connection_id, text).decode()}
