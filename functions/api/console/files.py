"""Reads the files that browsers get, once, when the first is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from functions.api.door.compression import compressed

OWN = Path(__file__).parent / "files"
PAGES = ("console.html", "docs.html")
# Its other files are Python.
RENDERER = ("swagger-ui.css", "swagger-ui-bundle.js")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File:
    """One file, as it is served."""

    def __init__(self, name: str, body: bytes) -> None:
        self.body = body
        self.content_type = _TYPES[Path(name).suffix]
        self.etag = f'"{digest(body)}"'

    @cached_property
    def gzip(self) -> bytes:
        """The body in gzip."""
        return compressed(self.body)


def digest(body: bytes) -> str:
    """Returns the text by which contents are told apart."""
    return hashlib.sha256(body).hexdigest()[:16]


class Site:
    """The files of one release.

    Attributes:
        version: changes with any file but the pages. It is part of the path of all others, so that browsers may keep them
            for good.
        assets: the files that pages use, by name.
        pages: the pages, by name, with the version in their links.
    """

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        self.assets = {name: File(name, body) for name, body in bodies.items() if name not in PAGES}
        self.version = digest("".join(name + file.etag for name, file in sorted(self.assets.items())).encode())
        self.pages = {
            name: File(name, body.replace(b"{version}", self.version.encode()))
            for name, body in bodies.items()
            if name in PAGES
        }


@cache
def site() -> Site:
    """Returns the files of this artifact."""
    spec = find_spec("fastapi_swagger")
    assert spec is not None
    assert spec.submodule_search_locations
    renderer = Path(spec.submodule_search_locations[0]) / "resources"
    paths = (*OWN.iterdir(), *(renderer / name for name in RENDERER))
    return Site({path.name: path.read_bytes() for path in paths})
