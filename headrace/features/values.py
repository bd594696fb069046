"""The values of feature tables: names, what a lane and a registry keep in the state of their logs, requests and answers.

A lane is a log of events: the main log of the name `<namespace>/<event>`, and for lane n of several the companion with the
role `lane.<n>`. A registry is the log `<namespace>/.registry`, of which each entry is one registration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.errors import InvalidRequest
from headrace.log.seam import Which, which_of
from headrace.wal.extension import Extension
from headrace.wal.state import LogState

FEATURES = "features"  # the surface
DEFAULT_NAMESPACE = "default"
EVENT, REGISTRY = "event", "registry"  # kinds of definitions
FOLD, REGISTER = "fold", "register"  # kinds of followers: of a lane, and of a registry
MAX_EVENT_BYTES = 1024 * 1024  # data of one event
MAX_BATCH_EVENTS = 10_000  # of one push
MAX_READ = 10_000  # entries of one batch_get
MAX_EARLIER = 1_000  # pipelines that a lane remembers beside its newest one

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def check_namespace(text: str) -> str:
    """Checks that a text can be the name of a namespace, and returns it. Raises InvalidRequest."""
    if not _NAMESPACE.match(text):
        raise InvalidRequest("a namespace has 1 to 64 letters, digits and _ . - and begins with a letter or digit")
    return text


def event_name(namespace: str, event: str) -> str:
    """Returns the name of the log, or logs, with the events of a namespace's event."""
    return f"{namespace}/{event}"


def registry_name(namespace: str) -> str:
    """Returns the name of the log of a namespace's registrations."""
    return f"{namespace}/.registry"


def is_registry(name: str) -> bool:
    """Tells whether a log of this surface has the registrations of a namespace, not events."""
    return name.endswith(registry_name(""))


def role_of(lane: int) -> str:
    """Returns the role of a lane among the logs of its name."""
    return f"lane.{lane}" if lane else ""


def lane_of(role: str) -> int:
    """Returns the number of the lane with a role."""
    return int(role.removeprefix("lane.")) if role else 0


def lane(namespace: str, event: str, number: int) -> Which:
    """Returns the log that is a lane."""
    return which_of(event_name(namespace, event), role_of(number))


class LaneState(Extension, msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="lane"):
    """The extension of a lane's state.

    Attributes:
        since: the offset of the first event that the pipeline of the state's definition applies to.
        registered: incarnation of the registry, and its version in which this pipeline came. It only rises.
        ack: the last `ack_lsn` that was told.
    """

    since: int = 0
    registered: tuple[int, int] = (0, 0)
    ack: int = 0


class RegistryState(Extension, msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="registry"):
    """The extension of a registry's state.

    Attributes:
        version: the registry's version.
        done: the version whose pipelines all lanes have.
        incarnation: that of the log when the newest entry came.
    """

    version: int = 0
    done: int = 0
    incarnation: int = 0

    @property
    def is_open(self) -> bool:
        """Whether a lane may have an older pipeline than the registry says."""
        return self.done < self.version


def lane_state_of(state: LogState) -> LaneState:
    """Returns the extension of a lane's state."""
    return state.extension if isinstance(state.extension, LaneState) else LaneState()


def registry_state_of(state: LogState) -> RegistryState:
    """Returns the extension of a registry's state."""
    return state.extension if isinstance(state.extension, RegistryState) else RegistryState()


class Ack(NamedTuple):
    """The answer to a push.

    Attributes:
        ack_lsn: a number that rises with each event of the lane; of a batch, that of its last event.
        registry_version: the version of the registry that the event was checked against, or a later one.
        is_replay: whether the event repeats one within its window, and was not added again.
        event, lane, end: where it is: in this lane, before this offset.
    """

    ack_lsn: int
    registry_version: int
    is_replay: bool
    event: str
    lane: int
    end: int


class GetRequest(NamedTuple):
    """A request for the features of one entity.

    Attributes:
        key: a text, or a list of values; empty for a global table.
        features: which features; None for all.
    """

    table: str
    key: Any
    features: Sequence[str] | None = None


class DryRun(NamedTuple):
    """The answer to a registration that was only tried: what it would change, and the version as it is."""

    version: int
    diff: Mapping[str, Any]
