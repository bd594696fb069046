"""The relay: tells followers (routers, watch sessions, sockets, subscriptions, feature tables) of what is appended to the
logs that they follow.

handler      the Lambda entry: from events to verbs, from verbs to metrics; the frame is `functions/worker.py`
context      what verbs and followers need; created once for each process
followers    the port of a follower: what a visit is, and what it may rely on
kinds        which kinds of followers there are
visits       visits followers, and sees to it that an unfinished visit is followed by another

What a follower did is decided where it did it: a router's cursor is in its destination's entry, a subscription's
generation in its row. So each visit may run twice, several times at once, late, or not at all.
"""
