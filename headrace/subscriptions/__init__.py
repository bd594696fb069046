"""Subscriptions over streams (`__ds`, protocol § 6 and 7): durable cursors over many streams, and wakes that tell a worker
that one of them has data past its cursor.

patterns    which names a glob matches
values      a subscription, its wake, its links
rules       the state machine, as pure functions
rows        the rows in which they are stored
addresses   where webhooks may go
delivery    the port through which they leave
signing     the keys that sign them
verbs       what clients ask for; `wakes`: what time and appends bring about
"""
