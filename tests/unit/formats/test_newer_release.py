"""What a newer release wrote is refused as that, and not as damage: nothing is wrong with it."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from functions.api.door.errors import response_to
from functions.indexer.handler import messages
from functions.queue import parse
from functions.sealer.purge import purge
from functions.worker import is_poison
from headrace import definition
from headrace.batch import decode_frames
from headrace.errors import Damaged, NewerFormat
from headrace.index import descriptors
from headrace.index import manifest as indexes
from headrace.index.job import JobInput
from headrace.manifest import manifest as manifests
from headrace.objects import keys, packed
from headrace.objects.memory import MemoryObjects
from headrace.recovery.survey import read_mark
from headrace.segment import keypage
from headrace.streams.profiles.touch import templates
from headrace.tables.catalog import item_row, row_item
from headrace.tables.dynamodb_catalog import DynamoCatalog
from headrace.tables.producers import DynamoProducers
from headrace.tables.watermarks import DynamoWatermarks
from headrace.wal.entry import VERSION, item_entry
from tests.unit.formats import samples
from tests.unit.manifest.samples import segment
from tests.unit.recovery.world import Ruins
from tests.unit.sealer.world import SETTINGS, World, dispatcher

ROOT = Path(__file__).parents[3]
# Nothing of the next version is known but its number, and where it is: the rest may have any form.
NEXT = VERSION + 1
OBJECT = {"version": NEXT, "everything": ["else", {"has": "changed"}]}


def test_an_entry_of_the_next_version_is_refused_as_newer() -> None:
    item: Any = {"log_id": {"S": "l"}, "slot": {"N": "7"}, "v": {"N": str(NEXT)}, "all": {"S": "new"}}
    with pytest.raises(NewerFormat, match=r"written by a newer release: upgrade: .*slot.*7.* version=2 known=1"):
        item_entry(item)


@pytest.mark.parametrize("kind", [manifests.Manifest, indexes.IndexManifest, JobInput, definition.Document])
def test_an_object_of_the_next_version_is_refused_as_newer(kind: type[Any]) -> None:
    with pytest.raises(NewerFormat, match="written by a newer release: upgrade: source=logs/x version=2 known=1"):
        packed.decode(packed.encode(OBJECT), kind, "logs/x")


# The next version may have another form, or the same one with another meaning.
SAME_FORM = {**msgspec.to_builtins(samples.TOMBSTONE), "version": NEXT}


@pytest.mark.parametrize("newer", [OBJECT, SAME_FORM])
@pytest.mark.parametrize(
    ("key", "kind"), [(keys.description("l"), manifests.Description), (keys.tombstone("l"), manifests.Tombstone)]
)
def test_log_json_and_deleted_json_of_the_next_version_are_refused_as_newer(
    newer: Any, key: str, kind: type[manifests.Description | manifests.Tombstone]
) -> None:
    objects = MemoryObjects()
    objects.put(key, msgspec.json.encode(newer))
    with pytest.raises(NewerFormat, match=f"source={key} version=2"):
        read_mark(objects, key, kind)


@pytest.mark.parametrize("newer", [OBJECT, SAME_FORM])
def test_neither_a_purge_nor_a_recovery_takes_a_newer_description_for_another(newer: Any) -> None:
    world = Ruins()
    log_id = world.create("a")
    world.fill("a", 9)
    world.seal(log_id)
    world.logs.delete("a")
    world.wait(SETTINGS.trim_age_ms)
    world.wal.remove(log_id, [entry.slot for entry in world.entries(log_id)[:-1]])
    world.objects.put(keys.description(log_id), msgspec.json.encode(newer))
    with pytest.raises(NewerFormat):
        purge(world.parts, log_id)
    with pytest.raises(NewerFormat):
        world.recover()
    assert world.segment_keys(log_id)


def test_a_manifest_page_of_the_next_version_is_refused_as_newer() -> None:
    data = packed.encode(OBJECT)
    page = manifests.describe_page("page-1", data, (segment(0, 0, 3),))
    with pytest.raises(NewerFormat, match=f"source={page.key} version=2"):
        manifests.decode_page(data, page)


@pytest.mark.parametrize("newer", [OBJECT, {"version": NEXT, "templates": []}])
def test_templates_of_the_next_version_are_refused_as_newer(newer: Any) -> None:
    with pytest.raises(NewerFormat, match="source=touch templates version=2"):
        templates.load(msgspec.json.encode(newer))


class Next:
    """A store of which each item is of the next version."""

    def call(self, _: str, __: object) -> Any:
        return {"Item": {"v": {"N": str(NEXT)}, "end_slot": {"N": "1"}, "data": {"B": b"{}"}, "all": {"S": "new"}}}


ROWS: dict[str, Callable[[Any], object]] = {
    "catalog row": lambda store: DynamoCatalog(store, "t").get("streams", "a"),
    "watermark": lambda store: DynamoWatermarks(store, "t").get("l"),
    "usage": lambda store: DynamoWatermarks(store, "t").usage("l"),
    "note": lambda store: DynamoWatermarks(store, "t").note("l"),
    "producer row": lambda store: DynamoProducers(store, "t").get("l", "p"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_the_next_version_is_refused_as_newer(name: str) -> None:
    with pytest.raises(NewerFormat, match=r"written by a newer release: upgrade: .* version=2 known=1"):
        ROWS[name](Next())


def test_rows_of_this_version_have_no_number_and_what_they_gain_without_one_is_left_aside() -> None:
    item = row_item(samples.ROW)
    assert "v" not in item
    assert item_row({**item, "gained": {"S": "later"}}) == item_row(item)


@pytest.mark.parametrize(
    "newer", [OBJECT, {"version": NEXT, "verb": "look", "log_id": "l"}, {"version": NEXT, "verb": 7}]
)
def test_a_message_of_the_next_version_is_refused_as_newer(newer: dict[str, Any]) -> None:
    with pytest.raises(NewerFormat, match="source=message version=2"):
        parse(json.dumps(newer))
    if "verb" in newer:
        with pytest.raises(NewerFormat, match="source=message version=2"):
            list(messages(json.dumps(newer)))


def test_a_message_of_the_next_version_comes_again_and_is_no_poison() -> None:
    world = World()
    sealer, meter = dispatcher(world.parts)
    body = json.dumps({"version": NEXT, "verb": "seal", "log_id": "l"})
    record = {"eventSource": "aws:sqs", "messageId": "m", "body": body}
    assert sealer.dispatch({"Records": [record]}) == {"batchItemFailures": [{"itemIdentifier": "m"}]}
    assert meter.counts["PoisonedLogs"] == 0


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


def test_every_format_but_the_cursor_text_has_the_version_that_its_page_says() -> None:
    page = (ROOT / "docs/formats.md").read_text()
    rows = re.findall(r"^\| (.*?) \| .*? \| (.*?) \| `(\S+?)\.py: (\w+)` \|$", page, re.MULTILINE)
    assert {what for what, version, *_ in rows if version.startswith("none")} == {"cursor text"}
    assert len(rows) >= 16
    for what, version, path, constant in rows[1:]:
        found = getattr(importlib.import_module(path.replace("/", ".")), constant)
        number = (
            found if isinstance(found, int) else {f.name: f.default for f in msgspec.structs.fields(found)}["version"]
        )
        (said,) = re.findall(r"\b(?:0x0)?([0-9]+)\b", version.replace("`", " "))
        assert int(said) == number, what
