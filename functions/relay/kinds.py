"""The kinds of followers, by the kind in their rows; and who hears of new logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from functions.queue import Message
from functions.relay.bells import Bells
from functions.relay.context import Context
from functions.relay.followers import Follower
from functions.relay.lanes import LaneFollower, RegistryFollower
from functions.relay.routes import RouterFollower
from functions.relay.sockets import Sockets
from functions.relay.wakes import Wakes, tell_of_new
from headrace.features.values import FOLD, REGISTER
from headrace.routers.values import ROUTER
from headrace.sockets.channel import KIND as SOCKET
from headrace.subscriptions.values import KIND as SUBSCRIPTION
from headrace.watch.values import BELL

FOLLOWERS: Mapping[str, Callable[[Context], Follower]] = {
    BELL: Bells,
    FOLD: LaneFollower,
    REGISTER: RegistryFollower,
    ROUTER: RouterFollower,
    SOCKET: Sockets,
    SUBSCRIPTION: Wakes,
}
"""Creates the follower of each kind, once for each process."""

CREATED: tuple[Callable[[Context, Message], None], ...] = (tell_of_new,)
"""Called with the message about each new log, perhaps more than once, and before its followers are visited."""
