"""The server's own stream of metrics.

window     what was measured in an interval, and the interval records that it becomes. Pure.
recorder   the window under way of one process
gauges     what is true of the process when a window ends. Pure.
measured   the verbs of streams and the object store, measured
emitter    the stream, made when it is first needed, and the batch that a window becomes
"""
