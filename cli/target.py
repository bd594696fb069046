"""Which stream a command means: a server, and a name or a whole URL."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from cli.errors import BadInput

STREAM_ROOT = "/v1/stream/"


@dataclass(frozen=True)
class Target:
    """A stream's URL, and the name to show for it."""

    url: str
    name: str

    @property
    def path(self) -> str:
        """The path of the URL, as a fork's source is named."""
        return urlsplit(self.url).path


def base_url(text: str) -> str:
    """A server's URL without a trailing slash; refuses what is no http URL."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadInput(f"not a server URL: {text!r}", "give one like http://127.0.0.1:8787")
    return text.rstrip("/")


def target(base: str, name_or_url: str) -> Target:
    """The stream of that name at `base`, or of that URL. A name becomes one percent-encoded segment."""
    if name_or_url.startswith(("http://", "https://")):
        url = base_url(name_or_url)
        return Target(url, unquote(url.rpartition(STREAM_ROOT)[2] or url))
    if not name_or_url:
        raise BadInput("the name of a stream can't be empty")
    return Target(base_url(base) + STREAM_ROOT + segment(name_or_url), name_or_url)


def segment(name: str) -> str:
    """One URL path segment for any name; dots alone would be read as steps in the path."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if encoded in (".", "..") else encoded
