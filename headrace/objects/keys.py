"""Builds and parses every key of the bucket. One log's objects share one prefix."""

from __future__ import annotations

ROOT = "logs/"
JOBS = "jobs/"


def log_prefix(log_id: str) -> str:
    """Names everything of one log."""
    return f"{ROOT}{log_id}/"


def payload(log_id: str, slot: int, nonce: str) -> str:
    """Names a payload too large for an entry. The slot is the first one tried: the entry names the key, not the reverse."""
    return f"{ROOT}{log_id}/wal/{slot:028d}-{nonce}"


def segments(log_id: str) -> str:
    """Names every segment of a log, and their key pages."""
    return f"{ROOT}{log_id}/segments/"


def segment(log_id: str, number: int, nonce: str) -> str:
    """Names a sealed segment; `number` counts all that were ever sealed of the log."""
    return f"{ROOT}{log_id}/segments/{number:012d}-{nonce}.parquet"


def merged_segment(log_id: str, replaced_key: str, planned_ms: int, nonce: str) -> str:
    """Names a segment that replaces several, of which the first has the key `replaced_key`; and when it was planned."""
    return f"{ROOT}{log_id}/segments/{sealed_number(replaced_key):012d}-m{planned_ms:013d}-{nonce}.parquet"


def sealed_number(segment_key: str) -> int:
    """Returns which one of a log's sealed segments this is, from 0 on; of a merged one, the first that it replaced."""
    return int(segment_key.rpartition("/")[2].partition("-")[0])


def planned_ms(segment_key: str) -> int | None:
    """Returns when a merged segment was planned, by the key of it or of its key page; None: it is not merged."""
    marked = segment_key.rpartition("/")[2].split("-", 2)[1]
    return int(marked[1:]) if len(marked) == 14 and marked[0] == "m" and marked[1:].isdecimal() else None


def segment_keys(segment_key: str) -> str:
    """Returns the key of a segment's key page: key → rows, and each row's node, size, hops and append time."""
    return segment_key.removesuffix(".parquet") + ".keys.zst"


def manifest(log_id: str, generation: int) -> str:
    """Names one manifest generation."""
    return f"{ROOT}{log_id}/manifests/{generation:012d}.json.zst"


def manifest_page(log_id: str, first: int, nonce: str) -> str:
    """Names a sealed page of segment descriptors; `first` is the number of its first segment."""
    return f"{ROOT}{log_id}/manifests/pages/{first:012d}-{nonce}.json.zst"


def definitions(log_id: str) -> str:
    """Names every definition that a log ever had."""
    return f"{ROOT}{log_id}/registry/"


def definition(log_id: str, number: int, nonce: str) -> str:
    """Names a schema registry with a profile: immutable, named by the log's state."""
    return f"{definitions(log_id)}{number:012d}-{nonce}.json.zst"


def description(log_id: str) -> str:
    """Names what recovery needs to rebuild the catalog row: name, surface, incarnation, configuration."""
    return f"{ROOT}{log_id}/log.json"


def tombstone(log_id: str) -> str:
    """Names the tombstone that a deletion leaves behind."""
    return f"{ROOT}{log_id}/deleted.json"


def index(log_id: str) -> str:
    """Names everything that was indexed of one log."""
    return f"{ROOT}{log_id}/index/"


def index_manifests(log_id: str) -> str:
    """Names every generation of the index manifest."""
    return f"{index(log_id)}manifests/"


def index_manifest(log_id: str, generation: int) -> str:
    """Names one generation of the index manifest."""
    return f"{index_manifests(log_id)}{generation:012d}.json.zst"


def index_generation(key: str) -> int | None:
    """Returns the generation whose `index_manifest` this is; None if it is none."""
    name = key.rpartition("/")[2].removesuffix(".json.zst")
    is_one = len(name) == 12 and name.isascii() and name.isdecimal()
    return int(name) if is_one and "/index/manifests/" in key else None


def run(log_id: str, run_id: str) -> str:
    """Names everything of one index run."""
    return f"{index(log_id)}runs/{run_id}/"


def run_descriptor(log_id: str, run_id: str) -> str:
    """Names what makes an index run exist."""
    return f"{run(log_id, run_id)}run.msgpack.zst"


def run_part(log_id: str, run_id: str, family: str, number: int, nonce: str) -> str:
    """Names a Parquet object of an index run; the descriptor names those that count."""
    return f"{run(log_id, run_id)}{family}-{number:05d}-{nonce}.parquet"


def job_input(job_id: str) -> str:
    """Names what a job run is told."""
    return f"{JOBS}{job_id}/input.json.zst"


def job_result(job_id: str) -> str:
    """Names what a job run answers."""
    return f"{JOBS}{job_id}/result.json.zst"


_ARTIFACTS = (
    ("wal/", "", "wal_payload"),
    ("segments/", ".keys.zst", "key_page"),
    ("segments/", "", "segment"),
    ("manifests/pages/", "", "manifest_page"),
    ("manifests/", "", "manifest"),
    ("registry/", "", "schema_registry"),
    ("index/manifests/", "", "index_manifest"),
    ("index/", "", "index_run"),
)


def artifact(key: str) -> tuple[str, str] | None:
    """Returns whose object a key (or a prefix to list) names, and what kind of object: for counting requests.

    Returns:
        The log's id and the kind, `log` for what is of no other kind. None outside of logs.
    """
    log_id, slash, place = key.removeprefix(ROOT).partition("/")
    if not key.startswith(ROOT) or not slash:
        return None
    for folder, ending, kind in _ARTIFACTS:
        if place.startswith(folder) and place.endswith(ending):
            return log_id, kind
    return log_id, "log"
