"""Where webhooks may go: rules for URLs and for the addresses that their hosts resolve to. Reads no network.

A URL is checked when a subscription is made, and again at each delivery, with the addresses found then: a name may
resolve to something else by now. Only the standard library is imported: the function that posts webhooks holds little else.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_URL_BYTES = 2048
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Of IANA's special-purpose registry, multicast and reserved space; not asked of the standard library, whose table differs
# from one Python to the next.
_SPECIAL_V4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
# All that IPv6 has given out for the internet. Loopback, private, link-local and multicast addresses are outside, and so
# are those that hold one of IPv4: mapped, compatible, translated (NAT64).
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
# Within that: protocols with Teredo, which tunnels to IPv4; documentation; 6to4, which holds an address of IPv4.
_SPECIAL_V6 = [ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
# Names that resolve on the machine or in its network alone.
_LOCAL_NAMES = ("localhost", "local", "internal", "localdomain", "lan", "home", "corp", "intranet", "arpa")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# What a resolver would read as a part of an IPv4 address: `0x7f.1`, `2130706433`.
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)
_VISIBLE = re.compile(r"[\x21-\x7e]+", re.ASCII)


class UrlRefused(ValueError):
    """A webhook must not go to this URL or address. The message says why, and may be shown to the client that gave it."""


@dataclass(frozen=True)
class Target:
    """A URL that was checked, in the parts that a request needs.

    Attributes:
        host: a name in lower case, or an address without brackets.
        authority: host and port as the header `Host` has them.
        path: path and query.
        is_loopback: whether the host is this machine, by its name or address.
    """

    is_tls: bool
    host: str
    port: int
    authority: str
    path: str
    is_loopback: bool


def check_url(url: str, *, allow_loopback: bool = False) -> Target:
    """Checks the URL of a webhook as far as that is possible without resolving its host.

    Args:
        allow_loopback: whether this machine may be called, also with `http`: for tests and development.
    Raises:
        UrlRefused: a webhook may not go there.
    """
    if len(url) > MAX_URL_BYTES or not _VISIBLE.fullmatch(url) or "\\" in url:
        raise UrlRefused(f"the URL must have at most {MAX_URL_BYTES} visible ASCII characters, and no backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise UrlRefused("the URL is malformed") from exc
    host = (parts.hostname or "").removesuffix(".")
    if "@" in parts.netloc:
        raise UrlRefused("the URL must hold no user name or password")
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise UrlRefused("the URL must begin with https://, and name a host")
    is_loopback = _check_host(host, allow_loopback=allow_loopback)
    if parts.scheme == "http" and not is_loopback:
        raise UrlRefused("the URL must begin with https://")
    shown = f"[{host}]" if ":" in host else host
    return Target(
        is_tls=parts.scheme == "https",
        host=host,
        port=port or (443 if parts.scheme == "https" else 80),
        authority=f"{shown}:{port}" if port else shown,
        path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        is_loopback=is_loopback,
    )


def pick(target: Target, found: Sequence[str]) -> str:
    """Returns the address to call, out of those that the target's host resolved to: the first one.

    Raises:
        UrlRefused: there is none, or a webhook may not go to one of them.
    """
    if not found:
        raise UrlRefused("the host has no address")
    for text in found:
        address = _address(text)
        if address is None or not (address.is_loopback if target.is_loopback else is_public(address)):
            raise UrlRefused("the host resolves to an address that is not on the internet")
    return found[0]


def is_public(address: Address) -> bool:
    """Returns whether an address belongs to a host of the internet, and holds no address of another kind."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)


def _check_host(host: str, *, allow_loopback: bool) -> bool:
    """Returns whether the host is this machine. Raises UrlRefused if no webhook may go there."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        if not allow_loopback:
            raise UrlRefused("the URL must not name this machine")
        return True
    if address is not None:
        if not is_public(address):
            raise UrlRefused("the URL's address is not on the internet")
        return False
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or _NUMBER.fullmatch(labels[-1]):
        raise UrlRefused("the URL's host is neither a name nor an address; write other alphabets in Punycode")
    if len(labels) < 2 or labels[-1] in _LOCAL_NAMES:
        raise UrlRefused("the URL's host is not a name of the internet")
    return False


def _address(text: str) -> Address | None:
    """Returns the address that a text is, in its usual form and without a zone; None if it is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if isinstance(address, ipaddress.IPv6Address) and address.scope_id else address
