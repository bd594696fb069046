"""The server's own stream of metrics.

recorder   what was measured in an interval, and the interval records that it becomes
emitter    the stream, made when it is first needed, the batch that a window becomes, and the process's own figures
"""
