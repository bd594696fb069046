"""The definition by which Feast reads a snapshot, as Python text."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.features.jobs import CREATED, TIMESTAMP
from headrace.features.pipeline.tables import Table

_TYPES = {"i64": ("Int64", "INT64"), "f64": ("Float64", "DOUBLE"), "bool": ("Bool", "BOOL")}
_TEXT = ("String", "STRING")


def feature_view(table: Table, features: Mapping[str, str], path: str) -> str:
    """Returns the text of a module with a `FeatureView`, and an `Entity` for each column of the key.

    Args:
        features: their types by name.
        path: where the Parquet objects are.
    """
    keys = dict(zip(table.keys, table.key_types, strict=True))
    kinds = {name: _TYPES.get(kind, _TEXT) for name, kind in (keys | dict(features)).items()}
    used = ", ".join(sorted({kind for kind, _ in kinds.values()}))
    entities = [
        f'{key}_entity = Entity(name="{key}", join_keys=["{key}"], value_type=ValueType.{kinds[key][1]})'
        for key in keys
    ]
    fields = [f'        Field(name="{name}", dtype={kind}),' for name, (kind, _) in kinds.items()]
    return "\n".join(
        [
            "from feast import Entity, FeatureView, Field, FileSource, ValueType",
            f"from feast.types import {used}",
            "",
            *entities,
            f"{table.name.lower()}_view = FeatureView(",
            f'    name="{table.name}",',
            f"    entities=[{', '.join(f'{key}_entity' for key in keys)}],",
            "    schema=[",
            *fields,
            "    ],",
            "    source=FileSource(",
            f'        path="{path}",',
            f'        timestamp_field="{TIMESTAMP}",',
            f'        created_timestamp_column="{CREATED}",',
            "    ),",
            ")",
            "",
        ]
    )
