"""Loads for topics and queues, on Headrace and on another server of the contract."""
