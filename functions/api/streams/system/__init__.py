"""The server's own stream of metrics.

recorder   collects what was measured in an interval, and turns it into interval records emitter    the stream, made
when it is first needed, the batch that a window becomes, and the process's own figures
"""
