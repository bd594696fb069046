"""Manifests: the published part of a log, in numbered generations that are never changed.

manifest    the value, and the pure functions that make the next generation from it
merging     which segments are merged, and the generation that says so
invariants  what must hold between a generation and the next
store       loading and publishing through an `Objects` port: create-if-absent is the commit point of sealing
"""
