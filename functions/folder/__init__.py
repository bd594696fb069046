"""The folder: brings the rows of feature tables up to date with the events of their lanes (`headrace.features.fold`).

Modules: `handler` (its messages), `context` (what they need).
"""
