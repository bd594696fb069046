"""The WebSocket `/v0/ws` (§ 7.9), as the function behind API Gateway's WebSocket API.

handler      the Lambda entry: from events to calls
sockets      what happens when a socket is opened, sends a message, and is closed
commands     the messages of a client, decoded
channels     the commands that subscribe and unsubscribe

A socket is held by API Gateway, not by a process. Its row in the table of sessions says whose key opened it; a topic that
it is subscribed to is a follower's row, with the cursor. What is appended is pushed by the relay alone
(`functions/relay/sockets.py`); only the answer to a command is returned from here.
"""
