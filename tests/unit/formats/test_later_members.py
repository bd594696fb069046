"""Members of a log's state that a later release has added: a process that does not know them keeps them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.batch import Batch
from headrace.errors import Damaged
from headrace.manifest import manifest as manifests
from headrace.objects import keys, packed
from headrace.streams.values import AppendRequest, Retention, StreamState
from headrace.streams.verbs import Streams
from headrace.wal.entry import entry_item, item_entry
from headrace.wal.extension import ForeignExtension
from headrace.wal.state import LogState
from headrace.wal.stored import decode_state
from tests.support.builders import BYTES
from tests.unit.formats import samples
from tests.unit.sealer.world import World

NEW = {"hold": {"until": 7}, "extension": {"kind": "stream", "quota": [1, 2]}}


def stored(state: LogState) -> Any:
    """Returns the document of a state as an entry's item has it."""
    return json.loads(entry_item(replace(samples.CONTROL, state=state))["state"]["S"])


def test_a_member_that_is_not_known_is_written_back() -> None:
    state = decode_state(
        '{"next_offset":3,"hold":{"until":7},"extension":{"kind":"stream","closed":true,"quota":[1,2]}}'
    )
    assert (state.next_offset, state.extension, state.later) == (3, StreamState(closed=True), NEW)
    assert stored(state) == {"next_offset": 3, "extension": {"kind": "stream", "closed": True}, "later": NEW}
    assert decode_state(json.dumps(stored(state))) == state
    assert stored(replace(state, extension=None)) == {"next_offset": 3, "later": NEW}


def test_a_release_that_knows_a_member_takes_it_from_there() -> None:
    kept = {"floor": 2, "hold": 1, "extension": {"kind": "stream", "retention": {"age_ms": 5}, "quota": 3}}
    state = decode_state(json.dumps({"next_offset": 3, "later": kept}))
    assert (state.floor, state.extension) == (2, StreamState(retention=Retention(5)))
    assert state.later == {"hold": 1, "extension": {"kind": "stream", "quota": 3}}
    known = decode_state('{"later":{"floor":2,"extension":{"kind":"stream","closed":true}}}')
    assert known == LogState(floor=2, extension=StreamState(closed=True))


def test_what_a_writer_has_written_counts_before_what_it_kept() -> None:
    stale = '{"floor":2,"extension":{"kind":"stream","last_seq":"a"}}'
    text = f'{{"floor":4,"extension":{{"kind":"stream","last_seq":"b"}},"later":{stale}}}'
    assert decode_state(text) == LogState(floor=4, extension=StreamState(last_seq="b"))


def test_the_extension_of_another_surface_is_kept_whole() -> None:
    state = decode_state('{"extension":{"kind":"other","a":1},"later":{"extension":{"kind":"other","b":2}}}')
    assert state == LogState(extension=ForeignExtension({"kind": "other", "a": 1, "b": 2}))


NAMES = st.sampled_from(["next_offset", "floor", "forks", "new", "newer", "kind"])
PARTS = st.dictionaries(st.sampled_from(["last_seq", "new", "newer"]), st.just("x"))


@given(st.dictionaries(NAMES, st.integers(1, 9)), PARTS)
def test_a_state_is_the_same_after_any_number_of_writers(members: dict[str, Any], parts: dict[str, str]) -> None:
    state = decode_state(json.dumps({**members, "extension": {"kind": "stream", "closed": True, **parts}}))
    assert decode_state(json.dumps(stored(state))) == state
    later: dict[str, Any] = {name: value for name, value in members.items() if name in ("new", "newer", "kind")}
    parts.pop("last_seq", None)
    if parts:
        later["extension"] = {"kind": "stream", **parts}
    assert (state.later or {}) == later


def test_appends_and_manifests_keep_it() -> None:
    world = World()
    log_id = world.create("s")
    world.append("s", b"x")
    item = entry_item(world.wal.newest(log_id))
    item["state"]["S"] = json.dumps({**json.loads(item["state"]["S"]), "hold": 1})
    changed = item_entry(item)
    world.wal.remove(log_id, [changed.slot])
    world.wal.put(changed)
    fresh = Streams(world.stores)  # remembers no state
    fresh.append("s", AppendRequest(content_type=BYTES, records=Batch.of([b"y"])))
    assert world.wal.newest(log_id).state.later == {"hold": 1}
    world.seal(log_id)
    data = world.objects.get(keys.manifest(log_id, 1))
    manifest = manifests.decode(data, "m")
    assert manifest.state.later == {"hold": 1}
    document = msgspec.json.decode(packed.unframe(data, "m"))
    document["state"] = {**document["state"], "hold": 1, "later": {"floor": 1}}
    found = manifests.decode(packed.encode(document), "m")
    assert found == replace(manifest, state=replace(manifest.state, floor=1))


@pytest.mark.parametrize("state", [None, [], 1, {"next_offset": "x"}, {"later": 1}, {"extension": 1, "new": 1}])
def test_what_is_no_state_is_damage(state: Any) -> None:
    item = entry_item(samples.CONTROL)
    item["state"]["S"] = json.dumps(state)
    with pytest.raises(Damaged):
        item_entry(item)


@pytest.mark.parametrize("document", [[], {}, {"state": 1}, {"state": {"hold": 1}}, {"hold": [[[[[]]]]]}, "x"])
def test_what_is_no_manifest_is_damage(document: Any) -> None:
    with pytest.raises(Damaged):
        manifests.decode(packed.encode(document), "m")
    deep = b'{"state":{"hold":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    with pytest.raises(Damaged):
        manifests.decode(packed.frame(deep), "m")
