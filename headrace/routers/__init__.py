"""Routers: rules by which what is appended to one topic is copied to another (§ 6).

    values    names, requests, what is kept of a router beside its feed, and views
    errors    what only requests about routers can meet
    put       creating and changing a router
    remove    removing routers: one, or those of a topic that is to be deleted
    steps     one step of a router: reads its source, and appends to its destination
    verbs     what clients ask of routers

A router's definition and its cursor are a feed in the state of its destination (`headrace.topics.feeds`). Its source has a
row in the table of followers, so that the relay hears of appends; and a row in the catalog lists it.

All routers into a topic have the same source. So what leads to a topic is a chain: whether a new router would close a cycle
is known after a walk up that chain.
"""
