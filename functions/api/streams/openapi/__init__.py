"""The OpenAPI document.

paths        the document, and every path but those that ask what is in a stream
queries      these: search, aggregates, routing keys
words        what both are written in
"""

from functions.api.streams.openapi.paths import document

__all__ = ["document"]
