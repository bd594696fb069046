"""What a newer release wrote is refused as that, and not as damage: nothing is wrong with it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from functions.api.door.errors import response_to
from functions.worker import is_poison
from headrace.batch import decode_frames
from headrace.errors import Damaged, NewerFormat
from headrace.index import descriptors
from headrace.index import manifest as indexes
from headrace.index.job import JobInput
from headrace.manifest import manifest as manifests
from headrace.objects import packed
from headrace.segment import keypage
from headrace.wal.entry import VERSION, item_entry

# Nothing of the next version is known but its number, and where it is: the rest may have any form.
NEXT = VERSION + 1
OBJECT = {"version": NEXT, "everything": ["else", {"has": "changed"}]}


def test_an_entry_of_the_next_version_is_refused_as_newer() -> None:
    item: Any = {"log_id": {"S": "l"}, "slot": {"N": "7"}, "v": {"N": str(NEXT)}, "all": {"S": "new"}}
    with pytest.raises(NewerFormat, match=r"written by a newer release: upgrade: .*slot.*7.* version=2 known=1"):
        item_entry(item)


@pytest.mark.parametrize(
    "kind", [manifests.Manifest, manifests.Description, manifests.Tombstone, indexes.IndexManifest, JobInput]
)
def test_an_object_of_the_next_version_is_refused_as_newer(kind: type[Any]) -> None:
    with pytest.raises(NewerFormat, match="written by a newer release: upgrade: source=logs/x version=2 known=1"):
        packed.decode(packed.encode(OBJECT), kind, "logs/x")


def test_an_index_run_of_the_next_version_is_refused_as_newer() -> None:
    with pytest.raises(NewerFormat, match="written by a newer release"):
        packed.decode_msgpack(packed.encode_msgpack(OBJECT), descriptors.Descriptor, "logs/x")


def test_a_value_that_still_has_this_form_is_refused_by_its_version() -> None:
    log = indexes.IndexManifest(1, "l", 0, 0)
    newer = msgspec.structs.replace(log, version=NEXT)
    assert indexes.decode(indexes.encode(log), "i") == log
    with pytest.raises(NewerFormat, match="source=i version=2"):
        indexes.decode(indexes.encode(newer), "i")


def test_a_payload_and_a_key_page_of_the_next_version_are_refused_as_newer() -> None:
    raw = packed.frame(bytes([NEXT]) + b"anything")
    with pytest.raises(NewerFormat, match="source=p version=2"):
        decode_frames(raw, "p")
    with pytest.raises(NewerFormat, match="source=k version=2"):
        keypage.decode(raw, sha256=hashlib.sha256(raw).hexdigest(), count=1, source="k")


@pytest.mark.parametrize("version", [0, -1, "2", None])
def test_a_version_that_never_was_is_damage(version: object) -> None:
    with pytest.raises(Damaged):
        indexes.decode(packed.frame(json.dumps({**OBJECT, "version": version}).encode()), "i")


def test_clients_are_told_to_come_again_and_workers_try_again() -> None:
    error = NewerFormat("x", 2, 1)
    answer = response_to(error, "GET")
    assert answer.status_code == 503
    assert b"written by a newer release: upgrade" in answer.body
    assert not is_poison(error)
