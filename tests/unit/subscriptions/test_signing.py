"""The keys that sign webhooks, and how one follows another."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from headrace.errors import StoreError
from headrace.subscriptions.signing import (
    JWKS_AGE_S,
    REPLAY_S,
    BadSigningKeys,
    RotationUnderWay,
    SigningKeyring,
    SigningKeys,
)
from tests.support.clocks import ManualClock

FIRST, SECOND, THIRD = "a" * 43, "b" * 43, "c" * 43
NOW = 1_781_425_800
CACHED_S = 60


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def check(header: str, body: bytes, jwks: dict[str, list[dict[str, str]]]) -> int:
    """Verifies a signature as a receiver does, with a library that did not make it; returns its time."""
    found = re.fullmatch(r"t=(\d+),kid=(ds_[\w-]{43}),ed25519=([\w-]{86})", header)
    assert found is not None, header
    (key,) = (key for key in jwks["keys"] if key["kid"] == found[2])
    Ed25519PublicKey.from_public_bytes(decoded(key["x"])).verify(decoded(found[3]), found[1].encode() + b"." + body)
    return int(found[1])


def test_a_signature_is_verified_by_another_library() -> None:
    keys = SigningKeys.parse(FIRST)
    body = b'{"subscription_id":"bill"}'
    header = keys.sign(body, NOW)
    assert check(header, body, keys.jwks(NOW)) == NOW
    for changed in (header.replace(f"t={NOW}", f"t={NOW + 1}"), header.replace("ed25519=", "ed25519=A")[:-1]):
        with pytest.raises(InvalidSignature):
            check(changed, body, keys.jwks(NOW))
    with pytest.raises(InvalidSignature):
        check(header, body + b" ", keys.jwks(NOW))


def test_a_public_key_has_the_members_of_the_protocol_and_the_thumbprint_of_rfc_7638() -> None:
    (key,) = SigningKeys.parse(FIRST).jwks(NOW)["keys"]
    assert {name: value for name, value in key.items() if name not in ("kid", "x")} == {
        "kty": "OKP",
        "crv": "Ed25519",
        "use": "sig",
        "alg": "EdDSA",
    }
    assert len(decoded(key["x"])) == 32
    canonical = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": key["x"]}, separators=(",", ":")).encode()
    assert decoded(key["kid"].removeprefix("ds_")) == hashlib.sha256(canonical).digest()


def test_the_thumbprint_of_rfc_8037() -> None:
    from headrace.subscriptions.signing import Key

    key = Key(FIRST, 0)
    key.__dict__["_x"] = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert key.kid == "ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_no_key_shows_its_secret() -> None:
    keys = SigningKeys.parse(FIRST)
    assert FIRST not in json.dumps(keys.jwks(NOW)) + keys.sign(b"", NOW)


def test_a_new_key_is_public_before_its_first_use_and_the_old_one_after_its_last() -> None:
    old = SigningKeys.parse(FIRST)
    keys = old.rotated(SECOND, NOW, cached_s=CACHED_S)
    first_use = NOW + CACHED_S + JWKS_AGE_S
    assert keys.format() == f"{FIRST},{SECOND}@{first_use}"
    first, second = keys.keys
    assert first.kid == old.keys[0].kid != second.kid
    for now, signing, public in [
        (NOW, first, [first, second]),
        (first_use - 1, first, [first, second]),
        (first_use, second, [first, second]),
        (first_use + REPLAY_S - 1, second, [first, second]),
        (first_use + REPLAY_S, second, [second]),
    ]:
        assert keys.current(now) == signing
        assert keys.public(now) == public
        check(keys.sign(b"body", now), b"body", keys.jwks(now))


def test_a_receiver_with_the_oldest_cache_knows_the_key_of_each_signature_while_it_may_be_accepted() -> None:
    """A process may work with keys from before the rotation, and a receiver's cache may be as old as allowed."""
    old = SigningKeys.parse(FIRST)
    new = old.rotated(SECOND, NOW, cached_s=CACHED_S)
    for sent in range(NOW, NOW + 1200, 7):
        signer = old if sent < NOW + CACHED_S else new
        header = signer.sign(b"body", sent)
        for received in (sent, sent + REPLAY_S - 1):
            fetched = received - JWKS_AGE_S + 1
            # What was fetched since the process last read the secret.
            document = (new if fetched >= NOW + CACHED_S else old).jwks(fetched)
            fresh = new.jwks(received)
            assert header.split(",")[1].removeprefix("kid=") in {key["kid"] for key in fresh["keys"]}
            if received == sent:
                check(header, b"body", document)


def test_a_rotation_waits_for_the_one_before_and_drops_what_is_not_needed() -> None:
    keys = SigningKeys.parse(FIRST).rotated(SECOND, NOW, cached_s=CACHED_S)
    first_use = keys.keys[1].first_use_s
    with pytest.raises(RotationUnderWay) as caught:
        keys.rotated(THIRD, first_use - 1, cached_s=CACHED_S)
    assert caught.value.first_use_s == first_use
    soon = keys.rotated(THIRD, first_use, cached_s=CACHED_S)
    assert [key.secret for key in soon.keys] == [FIRST, SECOND, THIRD]
    late = keys.rotated(THIRD, first_use + REPLAY_S, cached_s=CACHED_S)
    assert [key.secret for key in late.keys] == [SECOND, THIRD]
    assert late.current(first_use + REPLAY_S).secret == SECOND
    with pytest.raises(BadSigningKeys):
        keys.rotated(SECOND, first_use, cached_s=CACHED_S)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short",
        f"{FIRST},",
        f"{FIRST},{SECOND}",
        f"{FIRST}@5,{SECOND}@5",
        f"{FIRST}@6,{SECOND}@5",
        f"{FIRST},{FIRST}@5",
        f"{FIRST}@-5",
        f"{FIRST}@soon",
        f"{FIRST}:read",
    ],
)
def test_a_malformed_secret_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(BadSigningKeys) as caught:
        SigningKeys.parse(text)
    assert FIRST not in str(caught.value)


def test_keys_are_read_again_when_they_are_old_and_stay_when_that_fails() -> None:
    clock = ManualClock()
    texts: list[str | Exception] = [OSError(), FIRST, OSError(), f"{FIRST},{SECOND}@1"]

    def read() -> str:
        found = texts.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    keyring = SigningKeyring(read, clock, age_ms=60_000)
    with pytest.raises(StoreError):
        keyring.keys()
    for _ in range(2):
        assert len(keyring.keys().keys) == 1
    clock.advance(60_000)
    for _ in range(2):
        assert len(keyring.keys().keys) == 1
    clock.advance(60_000)
    assert len(keyring.keys().keys) == 2
    assert not texts
