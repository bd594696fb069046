"""The verbs of streams as one object. Every method blocks, and may be called by any thread."""

from __future__ import annotations

from headrace.definition import Definition
from headrace.index.fetching import RunCache
from headrace.log.commit import Found
from headrace.log.context import Stores
from headrace.log.control import Controls
from headrace.log.logs import Log
from headrace.streams.create import decide_create
from headrace.streams.decide import SURFACE
from headrace.streams.values import Appended, AppendRequest, Created, CreateRequest


class Streams(Log):
    """The verbs of streams, by name. Methods raise the errors of `Log`."""

    def __init__(self, stores: Stores, run_cache: RunCache | None = None) -> None:
        """Creates the verbs. If `run_cache` is None, a cache in memory is created."""
        super().__init__(stores, SURFACE, run_cache)

    def create(self, name: str, request: CreateRequest) -> Created:
        """Creates a stream or a fork. If an equal one exists, returns that."""

        def find(controls: Controls) -> Found:
            found = controls.find_any(name)
            (picture,) = found.pictures
            if request.fork is None or (picture is not None and not picture.state.ended):
                return found
            source = controls.find(request.fork.source)
            return Found((picture, *source.pictures), source.read)

        others = (request.fork.source,) if request.fork is not None else ()
        created: Created = self.control(name, find, decide_create, (name, request), *others)
        return created

    def append(self, name: str, request: AppendRequest) -> Appended:
        """Appends records, closes the stream, or both."""
        ticket = self.appender.append(name, request)
        appended: Appended = ticket.result()
        return appended._replace(tries=ticket.tries)

    def definition(self, name: str) -> Definition:
        """Returns the stream's current definition."""
        return self.definition_of(self.head(name))
