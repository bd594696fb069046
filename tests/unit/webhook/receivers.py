"""Receivers of webhooks on loopback that behave badly, and certificates for them."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Behaviour = Callable[[socket.socket], None]


class Receiver:
    """A server that treats each connection as `behaviour` says. `requests` holds what was sent to it."""

    def __init__(self, behaviour: Behaviour, context: ssl.SSLContext | None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.ended = threading.Event()
        self._behaviour = behaviour
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while not self.ended.is_set():
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._treat, args=(plain,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _treat(self, plain: socket.socket) -> None:
        with plain, suppress(OSError):
            plain.settimeout(10)
            line = self._context.wrap_socket(plain, server_side=True) if self._context else plain
            with line:
                self.requests.append(_request(line))
                self._behaviour(line)

    def close(self) -> None:
        self.ended.set()
        # A thread that waits in accept is not woken by a close.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


@contextmanager
def receiver(behaviour: Behaviour, context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Yields a receiver, and ends it."""
    running = Receiver(behaviour, context)
    try:
        yield running
    finally:
        running.close()


def answering(status: str, body: bytes = b"", *headers: str) -> Behaviour:
    """Returns the behaviour of a receiver that answers at once."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return lambda line: line.sendall("\r\n".join(lines).encode() + body)


def _request(line: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += (piece := line.recv(65536))
        if not piece:
            return data
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(field[15:]) for field in head.split(b"\r\n") if field.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += line.recv(65536)
    return head + b"\r\n\r\n" + body


def certificate(folder: Path, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Returns the context of a server that has a certificate for these names, and that of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.datetime.now(datetime.UTC)
    alternatives: list[x509.GeneralName] = []
    for name in names:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            alternatives.append(x509.DNSName(name))
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "certificate.pem", folder / "key.pem"
    pem.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pem, secret)
    return server, ssl.create_default_context(cafile=str(pem))
