"""Manifests: what is published of a log, in numbered generations that never change.

manifest    the value, and the pure functions that compute the next generation
merging     which segments are merged, and the generation that publishes a merge
dropping    the generation that leaves out segments below the floor
invariants  the rules for a generation and for its difference from the one before
store       loads and publishes generations through an `Objects` port: create-if-absent is the commit point of sealing
"""
