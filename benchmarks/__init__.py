"""Loads for any server of the protocol (`benchmarks.http`), and the same on others (`benchmarks.peers`)."""
