"""Where webhooks may go."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.subscriptions.addresses import MAX_URL_BYTES, UrlRefused, check_url, is_public, pick

REFUSED_ADDRESSES = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",  # metadata of an instance
    "169.254.170.2",  # credentials of a container
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",  # compatible with IPv4
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:93.184.216.34",
    "::ffff:0:10.0.0.1",
    "64:ff9b::10.0.0.1",  # NAT64
    "64:ff9b::93.184.216.34",
    "64:ff9b:1::10.0.0.1",
    "100::1",
    "2001::1",  # Teredo
    "2001:10::1",
    "2001:db8::1",
    "2002:a00:1::1",  # 6to4 of 10.0.0.1
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata of an instance
    "fe80::1",
    "fec0::1",
    "ff02::1",
]
PUBLIC_ADDRESSES = [
    *("1.1.1.1", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.0.1"),
    *("172.32.0.1", "192.0.1.1", "192.167.0.1", "198.20.0.1", "223.255.255.255"),
    *("2001:4860:4860::8888", "2606:4700::1111", "2a00:1450::1", "2400:cb00::1"),
]


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
def test_an_address_that_is_not_of_the_internet_is_refused_as_host_and_as_result(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    host = f"[{address}]" if ":" in address else address
    for scheme in ("https", "http"):
        with pytest.raises(UrlRefused):
            check_url(f"{scheme}://{host}/hook")
    with pytest.raises(UrlRefused, match="not on the internet"):
        pick(check_url("https://hooks.acme.example/ds"), [address])


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_an_address_of_the_internet_is_called(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert check_url(f"https://{host}/hook").host == address
    assert pick(check_url("https://hooks.acme.example/ds"), [address]) == address


@given(st.ip_addresses())
def test_what_the_standard_library_does_not_call_global_is_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(address):
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:", "64:ff9b::", "::"]))
def test_no_address_of_ipv4_is_called_within_one_of_ipv6(address: ipaddress.IPv4Address, prefix: str) -> None:
    assert not is_public(ipaddress.ip_address(f"{prefix}{address}"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.acme.example/ds",
        "//hooks.acme.example/ds",
        "http://hooks.acme.example/ds",
        "ftp://hooks.acme.example/ds",
        "file:///etc/passwd",
        "https:///ds",
        "https://user@hooks.acme.example/ds",
        "https://user:password@hooks.acme.example/ds",
        "https://hooks.acme.example@10.0.0.1/ds",
        "https://@hooks.acme.example/ds",
        "https://hooks.acme.example\\@10.0.0.1/ds",
        "https://hooks.acme.example:0/ds",
        "https://hooks.acme.example:65536/ds",
        "https://hooks.acme.example:port/ds",
        "https://hooks.acme.example/d s",
        "https://hooks.acme.example/\r\nHost: other",
        "https://hooks.acme.example/\u00e9",
        "https://h\u00f6oks.example/ds",
        "https://hooks..example/ds",
        "https://.acme.example/ds",
        "https://-hooks.example/ds",
        "https://hooks.acme.exam%70le/ds",
        "https://localhost/ds",
        "https://localhost./ds",
        "https://LOCALHOST/ds",
        "https://api.localhost/ds",
        "https://printer.local/ds",
        "https://metadata.google.internal/ds",
        "https://router.lan/ds",
        "https://1.0.0.127.in-addr.arpa/ds",
        "https://intranet/ds",
        "https://2130706433/ds",
        "https://0x7f000001/ds",
        "https://127.1/ds",
        "https://0177.0.0.1/ds",
        "https://127.0.0.0x1/ds",
        "https://[fe80::1%25eth0]/ds",
        "https://[2606:4700::1111%25eth0]/ds",
        "https://[::1/ds",
        f"https://{'a' * 64}.example/ds",
        f"https://{'a.' * 127}example/ds",
        "https://hooks.acme.example/" + "a" * MAX_URL_BYTES,
    ],
)
def test_a_url_that_is_refused(url: str) -> None:
    for allow_loopback in (False, True):
        if allow_loopback and "localhost" in url.lower() and "api." not in url:
            continue
        with pytest.raises(UrlRefused):
            check_url(url, allow_loopback=allow_loopback)


def test_a_url_in_parts() -> None:
    target = check_url("https://Hooks.Acme.example:8443/ds/1?key=a%20b#part")
    assert (target.host, target.port, target.authority) == ("hooks.acme.example", 8443, "hooks.acme.example:8443")
    assert (target.is_tls, target.path, target.is_loopback) == (True, "/ds/1?key=a%20b", False)
    plain = check_url("https://hooks.acme.example")
    assert (plain.port, plain.authority, plain.path) == (443, "hooks.acme.example", "/")
    assert check_url("https://[2606:4700::1111]/").authority == "[2606:4700::1111]"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_this_machine_is_called_only_where_that_is_allowed(scheme: str, host: str) -> None:
    assert check_url(f"{scheme}://{host}:9000/hook", allow_loopback=True).is_loopback
    with pytest.raises(UrlRefused, match="this machine"):
        check_url(f"{scheme}://{host}:9000/hook")


@pytest.mark.parametrize("url", ["http://10.0.0.1/hook", "http://[::ffff:10.0.0.1]/hook", "http://0.0.0.0/hook"])
def test_no_other_private_address_is_called_where_this_machine_may_be(url: str) -> None:
    with pytest.raises(UrlRefused):
        check_url(url, allow_loopback=True)


def test_a_name_of_the_internet_never_leads_to_this_machine() -> None:
    target = check_url("https://rebound.example/hook", allow_loopback=True)
    with pytest.raises(UrlRefused):
        pick(target, ["127.0.0.1"])


def test_the_name_of_this_machine_never_leads_elsewhere() -> None:
    target = check_url("http://localhost/hook", allow_loopback=True)
    assert pick(target, ["127.0.0.1"]) == "127.0.0.1"
    for address in ("93.184.216.34", "10.0.0.1", "localhost", "::1%lo"):
        with pytest.raises(UrlRefused):
            pick(target, [address])


def test_one_bad_address_among_good_ones_is_enough_to_refuse() -> None:
    target = check_url("https://hooks.acme.example/ds")
    assert pick(target, ["93.184.216.34", "1.1.1.1"]) == "93.184.216.34"
    with pytest.raises(UrlRefused):
        pick(target, ["93.184.216.34", "10.0.0.1"])
    with pytest.raises(UrlRefused, match="no address"):
        pick(target, [])
