"""Checks whether a deployment is healthy: `command` and `cloud` gather facts; `rules` decides, without I/O, what they
mean.
"""
