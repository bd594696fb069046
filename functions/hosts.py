"""The hosts that a server without keys obeys.

Without keys, the address is all that tells a program of this machine from a web page that its browser shows. So only
loopback is obeyed, and the hosts that were allowed: as `Host`, or a page whose name was made to lead here could write (DNS
rebinding); and as `Origin`, or any page could (a browser sends a form without asking).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from functions.refusals import Forbidden

_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:/@\[\]]+?)\.?)(?::\d{1,5})?", re.ASCII)


def host_of(authority: str) -> str | None:
    """Returns the host in the value of a `Host` header, in lower case, without port, brackets and the dot of a full
    name; None if it is malformed.
    """
    found = _AUTHORITY.fullmatch(authority.lower())
    return found and (found[1] or found[2])


def check_sender(host: str | None, origin: str | None, allowed: Collection[str]) -> None:
    """Checks that a request with these headers, `Host` and `Origin`, names only loopback and allowed hosts. A missing
    header is right: a browser always sends `Host`, and `Origin` with all that a page of another site writes or may read.
    The origin `null` is that of a page that is a file or in a sandbox, of no host.

    Raises:
        Forbidden: one of them names another host.
    """
    scheme, _, authority = (origin or "").partition("://")
    of_origin = host_of(authority) if scheme.lower() in ("http", "https") else None
    for header, value, name in (("host", host, host_of(host or "")), ("origin", origin, of_origin)):
        if value is not None and not (name and (is_loopback(name) or name in allowed)):
            raise Forbidden(
                f"a server without API keys obeys loopback only: {header}={value[:100]}; to obey others, too, set "
                "HEADRACE_ALLOWED_HOSTS (headrace dev: --allow-host)"
            )


def is_loopback(host: str) -> bool:
    """Returns whether the address or name always means this machine: `localhost`, a name below it (RFC 6761), or a
    loopback address. Any other name may lead elsewhere tomorrow.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
