"""Requests about subscriptions (`/v1/stream/__ds/subscriptions/{id}`), and the ids of named consumers."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote

from cli.errors import BadInput
from cli.options import STREAM_ROOT, Target, base_url, segment

ROOT = f"{STREAM_ROOT}__ds/subscriptions/"
WAKES = "__wakes/"
"""Where the wake streams of named consumers are. No pattern of `headrace work` covers them."""
LEASE_MS = (1000, 600_000)
MAX_ID_BYTES = 256
MAX_NAME_BYTES = 128
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def subscription(base: str, subscription_id: str) -> Target:
    """Returns the subscription with this id. Raises BadInput if the id is empty."""
    if not subscription_id:
        raise BadInput("an id can't be empty")
    return Target(base_url(base) + ROOT + segment(subscription_id), subscription_id)


def consumer_id(name: str, stream: str) -> str:
    """Returns the id of the subscription that keeps where the consumer `name` is in a stream: `NAME/STREAM`, or a digest in
    place of a stream's name that no id can hold.

    Raises:
        BadInput: the name has a slash, which ends it in the id, or is too long; or no subscription can name the stream.
    """
    if not name or "/" in name or len(name.encode(errors="replace")) > MAX_NAME_BYTES or _CONTROL.search(name):
        raise BadInput(
            f"--as {name!r}: not a name", f"1 to {MAX_NAME_BYTES} bytes without a slash, like the name of a service"
        )
    if stream.strip("/") != stream:
        raise BadInput(f"{stream}: a name with a slash at its end is out of reach of --as", "read it without --as")
    plain = f"{name}/{stream}"
    if len(plain.encode(errors="replace")) <= MAX_ID_BYTES and not _CONTROL.search(plain):
        return plain
    return f"{name}/sha256:{hashlib.sha256(stream.encode(errors='surrogatepass')).hexdigest()}"


def is_covered(pattern: str, stream: str) -> bool:
    """Returns whether a pattern covers a stream: by whole segments between slashes, `*` is one and `**` any number; percent
    escapes stand for what they encode. Wake streams of named consumers are never covered, nor is a name that no
    subscription can have: with a slash at an end.
    """
    return (
        not stream.startswith(WAKES)
        and stream == stream.strip("/")
        and _is_match(pattern.split("/"), stream.split("/"))
    )


def _is_match(pattern: list[str], path: list[str]) -> bool:
    """Returns whether the segments of a pattern match those of a path: `reached` are the places in the path where what is
    left of the pattern may begin.
    """
    reached = {0}
    for part in pattern:
        if part == "**":
            reached = set(range(min(reached, default=len(path) + 1), len(path) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(path) and (part == "*" or unquote(part) == path[at])}
    return len(path) in reached


def literal_prefix(pattern: str) -> str:
    """Returns the text that the name of each stream begins with that a pattern covers."""
    whole: list[str] = []
    for part in pattern.split("/"):
        if part == "**":
            return "/".join(whole)  # it may stand for no segment: then the slash before it is missing, too
        if part == "*":
            return "".join(f"{segment}/" for segment in whole)
        whole.append(unquote(part))
    return "/".join(whole)
