"""The errors that only requests about routers have; `code` is the contract's (§ 6).

NotFound
└── RouterNotFound
Conflict
├── RouterCycle       the router would close a cycle
├── FanIn             another topic feeds the destination already
└── Repointed         the router exists with another source or destination
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import Conflict, NotFound


class RouterNotFound(NotFound):
    """There is no router with this name."""

    code = "router_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f'router "{name}" does not exist')
        self.detail = {"router": name}


class RouterCycle(Conflict):
    """The router would close a cycle, and is not to be allowed to."""

    code = "router_cycle"

    def __init__(self, name: str, cycle: Sequence[str]) -> None:
        super().__init__(f'router "{name}" would close a cycle: {" -> ".join(cycle)}')
        self.detail = {"router": name, "cycle": list(cycle)}


class FanIn(Conflict):
    """Another topic feeds the destination already: a topic is fed by one."""

    code = "topic_exists_incompatible"

    def __init__(self, dest: str, source: str) -> None:
        super().__init__(f'topic "{dest}" is fed by another topic already: source={source}')
        self.detail = {"topic": dest, "reason": "router_dest_fan_in", "source": source}


class Repointed(Conflict):
    """The router exists with another source or destination: its cursor would mean nothing there."""

    code = "topic_exists_incompatible"

    def __init__(self, name: str, source: str, dest: str) -> None:
        super().__init__(f'router "{name}" exists: delete it first: source={source} dest={dest}')
        reason = {"reason": "router_repoint_forbidden", "existing_source": source, "existing_dest": dest}
        self.detail = {"router": name, **reason}
