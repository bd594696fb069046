"""The one customer key. Whoever may not use it reads nothing, whatever else they may do."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from constructs import Construct


class DataKey(Construct):
    """Encrypts tables, bucket and secret; rotated yearly; outlives the stack where the data do."""

    def __init__(self, scope: Construct, construct_id: str, *, removal: RemovalPolicy) -> None:
        super().__init__(scope, construct_id)
        self.key = kms.Key(
            self,
            "Key",
            description="Headrace: tables, bucket and secret",
            enable_key_rotation=True,
            removal_policy=removal,
        )
