"""Builds and parses every key of the bucket. All objects of one log have the same prefix."""

from __future__ import annotations

ROOT = "logs/"
JOBS = "jobs/"
_PAGE = ".page.zst"
_REQUEST = "/request.json.zst"


def log_prefix(log_id: str) -> str:
    """Returns the prefix of all objects of a log."""
    return f"{ROOT}{log_id}/"


def log_of(key: str) -> str:
    """Returns the id of the log to which an object belongs."""
    return key.split("/", 2)[1]


def payloads(log_id: str) -> str:
    """Returns the prefix of all payloads of a log."""
    return f"{ROOT}{log_id}/wal/"


def payload(log_id: str, slot: int, nonce: str) -> str:
    """Returns the key of a payload that is too large for an entry. `slot` is the first slot tried; the entry that names
    the key may be in a later slot.
    """
    return f"{payloads(log_id)}{slot:028d}-{nonce}"


def segments(log_id: str) -> str:
    """Returns the prefix of all segments of a log and their key pages."""
    return f"{ROOT}{log_id}/segments/"


def segment(log_id: str, number: int, nonce: str) -> str:
    """Returns the key of a sealed segment; `number` counts all segments that were ever sealed of the log."""
    return f"{ROOT}{log_id}/segments/{number:012d}-{nonce}.parquet"


def merged_segment(log_id: str, replaced_key: str, planned_ms: int, nonce: str) -> str:
    """Returns the key of a merged segment. It contains the number of the first replaced segment (`replaced_key`) and
    the time when the merge was planned.
    """
    return f"{ROOT}{log_id}/segments/{sealed_number(replaced_key):012d}-m{planned_ms:013d}-{nonce}.parquet"


def sealed_number(segment_key: str) -> int:
    """Returns the number of a sealed segment from its key, counted from 0; for a merged segment, that of the first
    segment that it replaced.
    """
    return int(segment_key.rpartition("/")[2].partition("-")[0])


def planned_ms(segment_key: str) -> int | None:
    """Returns when (epoch ms) a merged segment was planned, from its key or that of its key page; None if the segment is
    not merged.
    """
    marked = segment_key.rpartition("/")[2].partition("-")[2].partition("-")[0]
    return int(marked[1:]) if len(marked) == 14 and marked[0] == "m" and marked[1:].isdecimal() else None


def segment_keys(segment_key: str) -> str:
    """Returns the key of a segment's key page, the object with the rows of each routing key."""
    return segment_key.removesuffix(".parquet") + ".keys.zst"


def manifest(log_id: str, generation: int) -> str:
    """Returns the key of a manifest generation."""
    return f"{ROOT}{log_id}/manifests/{generation:012d}.json.zst"


def manifests(log_id: str) -> str:
    """Returns the prefix of all manifest generations of a log, and after them of its pages."""
    return f"{ROOT}{log_id}/manifests/"


def generation(key: str) -> int | None:
    """Returns the number of the manifest generation with this key; None if it is the key of something else."""
    number = key.partition("/manifests/")[2].partition(".")[0]
    return int(number) if number.isdecimal() else None


def manifest_pages(log_id: str) -> str:
    """Returns the prefix of all sealed pages of a log's manifests."""
    return f"{manifests(log_id)}pages/"


def manifest_page(log_id: str, generation: int, nonce: str) -> str:
    """Returns the key of a sealed page of a manifest; `generation` is the number of the first one that names it."""
    return f"{manifest_pages(log_id)}{generation:012d}-{nonce}.json.zst"


def page_generation(page_key: str) -> int:
    """Returns the number of the first generation that names, or should have named, the page with this key."""
    return int(page_key.rpartition("/")[2].partition("-")[0])


def definitions(log_id: str) -> str:
    """Returns the prefix of all definitions that a log ever had."""
    return f"{ROOT}{log_id}/registry/"


def definition(log_id: str, number: int, nonce: str) -> str:
    """Returns the key of a definition (schema registry and profile); it is immutable, and named by the log's state."""
    return f"{definitions(log_id)}{number:012d}-{nonce}.json.zst"


def snapshots(log_id: str) -> str:
    """Returns the prefix of all snapshots of who holds a queue's jobs; `log_id` is that of its lease log."""
    return f"{ROOT}{log_id}/snapshots/"


def snapshot(log_id: str, offset: int, nonce: str) -> str:
    """Returns the key of a snapshot that was taken when the lease log had `offset` records; immutable."""
    return f"{snapshots(log_id)}{offset:020d}-{nonce}.msgpack.zst"


def removed(log_id: str, number: int, nonce: str) -> str:
    """Returns the key of an object that names the pages of a log's removed records; it is immutable, and named by the
    log's state. `number` rises with each such object.
    """
    return f"{ROOT}{log_id}/dead/{number:012d}-{nonce}.zst"


def removed_page(log_id: str, number: int, nonce: str) -> str:
    """Returns the key of a page of removed records; immutable. `number` is that of the first object that names it."""
    return f"{ROOT}{log_id}/dead/{number:012d}-{nonce}{_PAGE}"


def is_removed_page(key: str) -> bool:
    """Returns whether this is the key of a page of removed records."""
    return key.endswith(_PAGE)


def numbered(key: str) -> tuple[str, int]:
    """Returns the prefix of all objects of the same kind and log, and the number in the key, which is that of an object
    of the surface: `removed`, `removed_page` or `snapshot`.
    """
    prefix, slash, name = key.rpartition("/")
    return prefix + slash, int(name.partition("-")[0])


def description(log_id: str) -> str:
    """Returns the key of a log's `log.json`, which recovery needs to rebuild the catalog row."""
    return f"{ROOT}{log_id}/log.json"


def tombstone(log_id: str) -> str:
    """Returns the key of a log's `deleted.json`, which remains after the log is purged."""
    return f"{ROOT}{log_id}/deleted.json"


def index(log_id: str) -> str:
    """Returns the prefix of all index objects of a log."""
    return f"{ROOT}{log_id}/index/"


def index_manifests(log_id: str) -> str:
    """Returns the prefix of all generations of a log's index manifest."""
    return f"{index(log_id)}manifests/"


def index_manifest(log_id: str, generation: int) -> str:
    """Returns the key of a generation of the index manifest."""
    return f"{index_manifests(log_id)}{generation:012d}.json.zst"


def index_generation(key: str) -> int | None:
    """Returns the generation in the key of an index manifest; None for any other key."""
    name = key.rpartition("/")[2].removesuffix(".json.zst")
    is_one = len(name) == 12 and name.isascii() and name.isdecimal()
    return int(name) if is_one and "/index/manifests/" in key else None


def run(log_id: str, run_id: str) -> str:
    """Returns the prefix of all objects of an index run."""
    return f"{index(log_id)}runs/{run_id}/"


def made_id(now_ms: int, random: str) -> str:
    """Returns the id of a run or a job that is created now; `random` is 12 characters or more."""
    return f"{now_ms:013d}-{random[-12:]}"


def made_ms(made_id: str) -> int | None:
    """Returns the time (epoch ms) at which the id of a run or a job was created, read from the id itself; None for any
    other text.
    """
    time_ms, dash, _ = made_id.partition("-")
    return int(time_ms) if dash and len(time_ms) == 13 and time_ms.isdecimal() else None


def run_descriptor(log_id: str, run_id: str) -> str:
    """Returns the key of a run's descriptor, the object that makes the run exist."""
    return f"{run(log_id, run_id)}run.msgpack.zst"


def run_part(log_id: str, run_id: str, family: str, number: int, nonce: str) -> str:
    """Returns the key of a part of an index run, a Parquet object; only parts that the descriptor names count."""
    return f"{run(log_id, run_id)}{family}-{number:05d}-{nonce}.parquet"


def job_input(job_id: str) -> str:
    """Returns the key of a job's input object."""
    return f"{JOBS}{job_id}/input.json.zst"


def job_result(job_id: str) -> str:
    """Returns the key of a job's result object."""
    return f"{JOBS}{job_id}/result.json.zst"


def job_folder(job_id: str) -> str:
    """Returns the prefix of all objects of a job."""
    return f"{JOBS}{job_id}/"


def job_request(job_id: str) -> str:
    """Returns the key of the request of a job that a surface asked for (`headrace.jobs`)."""
    return f"{JOBS}{job_id}{_REQUEST}"


def requested_job(key: str) -> str | None:
    """Returns the id of the job whose request has this key; None for any other key."""
    job_id = key.removeprefix(JOBS).removesuffix(_REQUEST)
    return job_id if key == job_request(job_id) and made_ms(job_id) is not None else None


def job_started(job_id: str) -> str:
    """Returns the key of the object that says that a requested job has started."""
    return f"{JOBS}{job_id}/started.json.zst"


def job_progress(job_id: str) -> str:
    """Returns the key of the object that says how far a requested job is."""
    return f"{JOBS}{job_id}/progress.json.zst"


def job_ended(job_id: str) -> str:
    """Returns the key of the object that says that a requested job has ended."""
    return f"{JOBS}{job_id}/ended.json.zst"


_ARTIFACTS = (
    ("wal/", "", "wal_payload"),
    ("segments/", ".keys.zst", "key_page"),
    ("segments/", "", "segment"),
    ("manifests/pages/", "", "manifest_page"),
    ("manifests/", "", "manifest"),
    ("registry/", "", "schema_registry"),
    ("dead/", "", "removed_records"),
    ("snapshots/", "", "lease_snapshot"),
    ("index/manifests/", "", "index_manifest"),
    ("index/", "", "index_run"),
)


def artifact(key: str) -> tuple[str, str] | None:
    """Returns the log and the kind of object that a key, or a prefix to list, belongs to; used to count requests.

    Returns:
        The log's id and the kind; `log` if no other kind fits. None for keys outside of logs.
    """
    log_id, slash, place = key.removeprefix(ROOT).partition("/")
    if not key.startswith(ROOT) or not slash:
        return None
    for folder, ending, kind in _ARTIFACTS:
        if place.startswith(folder) and place.endswith(ending):
            return log_id, kind
    return log_id, "log"
