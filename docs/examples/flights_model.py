# /// script
# requires-python = ">=3.11"
# dependencies = ["scikit-learn==1.9.1", "pyarrow>=22"]
# ///
"""Trains a model on training sets of docs/features-walkthrough.md, and prints how well it tells which flights will be late.

    uv run --script docs/examples/flights_model.py STATE_FILE AIRPORTS CARRIERS

STATE_FILE is what `headrace dev --state-file` wrote. AIRPORTS and CARRIERS are files with what
`headrace features training-set` printed of the tables `AirportDay` and `CarrierDay`, for the same labels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import roc_auc_score

FIRST_TEST_DAY = "2013-01-25"
CALENDAR = ("hour",)
AIRPORT = ("airport_departures", "airport_late", "airport_delay")
CARRIER = ("carrier_departures", "carrier_late", "carrier_delay")


def read(environment: dict[str, str], printed: str) -> pa.Table:
    """Returns the training set whose objects a file names."""
    bucket = pyarrow.fs.S3FileSystem(
        endpoint_override=environment["AWS_ENDPOINT_URL"],
        access_key=environment["AWS_ACCESS_KEY_ID"],
        secret_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment["AWS_REGION"],
    )
    uris = Path(printed).read_text().split()
    return pa.concat_tables(pq.read_table(uri.removeprefix("s3://"), filesystem=bucket) for uri in uris)


def matrix(table: pa.Table, names: Sequence[str]) -> Any:
    """Returns columns as floats; null is NaN, which the model takes."""
    return np.column_stack([table[name].to_numpy().astype(float) for name in names])


def main(state_file: str, airports: str, carriers: str) -> None:
    """Prints the score of models with more and more features, and what the last one rests on."""
    environment = json.loads(Path(state_file).read_text())["environment"]
    table, more = read(environment, airports), read(environment, carriers)
    served = [json.loads(text) for text in table["served"].to_pylist()]
    same = sum(
        {name: value for name, value in row.items() if value is not None} == one
        for row, one in zip(table.select(AIRPORT).to_pylist(), served, strict=True)
    )
    print(f"{same} of {table.num_rows} labels have the features that were served")
    for name in CARRIER:  # both training sets have the rows of the labels, in their order
        table = table.append_column(name, more[name])

    is_test = table["day"].to_numpy(zero_copy_only=False) >= FIRST_TEST_DAY
    late = table["is_late"].to_numpy(zero_copy_only=False)
    print(
        f"{sum(~is_test)} labels to train with, {sum(is_test)} to test with, {late[is_test].mean():.0%} of them late"
    )
    print("AUC 0.50  by chance")
    for name, columns in (
        ("the hour alone", CALENDAR),
        ("hour and airport", CALENDAR + AIRPORT),
        ("hour, airport and carrier", CALENDAR + AIRPORT + CARRIER),
    ):
        values = matrix(table, columns)
        model = HistGradientBoostingClassifier(max_depth=3, learning_rate=0.05, random_state=0)
        model.fit(values[~is_test], late[~is_test])
        score = roc_auc_score(late[is_test], model.predict_proba(values[is_test])[:, 1])
        print(f"AUC {score:.2f}  {name}")
    found = permutation_importance(
        model, values[is_test], late[is_test], scoring="roc_auc", n_repeats=5, random_state=0
    )
    print("what the AUC loses if a feature is shuffled:")
    for place in np.argsort(-found.importances_mean):
        print(f"{found.importances_mean[place]:6.3f}  {columns[place]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
