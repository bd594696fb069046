"""Loads for feature tables, on Headrace and on beava's own server, and what folds and back-fills cost."""
