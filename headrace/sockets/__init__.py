"""Sockets: clients that subscribe and publish over one WebSocket (§ 7.9).

channel      a topic that a socket is subscribed to: what is stored of it, and the messages that its frames become
session      the row of an open socket
"""
