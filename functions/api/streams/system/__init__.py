"""The server's own stream of metrics.

recorder   collects what was measured in an interval, and turns it into interval records
emitter    creates the stream when it is first needed, and appends the batch of each window to it
"""
