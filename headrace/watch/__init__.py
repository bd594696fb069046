"""Watches: consumers that follow many topics at once, each from a cursor of its own.

frames       what a consumer is sent about one topic, from the pages that are read for it
"""
