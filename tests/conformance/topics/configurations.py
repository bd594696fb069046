"""The ways to run the server: the contracts of topics and of feature tables hold in each of them. Each push asks the first,
`--full` all; of the streaming door, what stays open.
"""

from __future__ import annotations

STRICTEST = (
    "three-processes"  # every log of five records or more is sealed soon, so that readers meet all of its places
)
STREAMING = "streaming-door"  # instances that answer one request at a time
CONFIGURATIONS = {
    STRICTEST: ("--api-processes", "3", "--seal-records", "5", "--seal-age", "1h"),
    "cold": ("--api-processes", "2", "--cold", "--seal-age", "1s"),
    STREAMING: ("--function-url", "--api-processes", "6", "--seal-records", "5", "--seal-age", "1h"),
}
STREAMED = ("test_watch.py", "test_work.py")
KEYS = {
    "reader": "read",
    "writer": "write",
    "deleter": "delete",
    "admin": "admin",
    "worker": "rw",
    "letters": "r+d",
    "bound": ":mine.|ours:",
    "reader-bound": "read:mine.",
    "writer-bound": "write:mine.",
    "all": "",
}
SCOPES = {  # what the keys without prefixes may do
    "reader": {"read"},
    "writer": {"write"},
    "deleter": {"delete"},
    "admin": {"admin"},
    "worker": {"read", "write"},
    "letters": {"read", "delete"},
    "all": {"read", "write", "delete", "admin"},
}
LIMITS = {
    "max_topics": 24,
    "max_routers": 4,
    "max_sse_connections": 3,
    "max_sse_connections_per_key": 2,
    "max_inflight_per_key": 3,
    "max_watch_sessions": 150,
    "max_total_bytes": 16 * 1024 * 1024,
}
GUARDED = {
    "HEADRACE_ALLOW_RESET": "0",  # as in a deployment
    "HEADRACE_API_KEYS": ",".join(f"{name}:{scopes}".rstrip(":") for name, scopes in KEYS.items()),
    **{f"HEADRACE_{name.upper()}": str(most) for name, most in LIMITS.items()},
}
