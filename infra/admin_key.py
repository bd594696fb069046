"""The first key of a deployment: generated, never shown, never in a template."""

from __future__ import annotations

from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

# Letters and digits only, since `:` and `,` have a meaning in a list of keys; 43 of them carry 256 bits.
KEY_CHARACTERS = 43


class AdminKey(Construct):
    """A bearer key with every scope. The secret's text is a list of keys, to which an operator adds more."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self.secret = secretsmanager.Secret(
            self,
            "Secret",
            description="Headrace API keys, comma separated: key[:scopes[:prefixes]]",
            encryption_key=key,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                exclude_punctuation=True, include_space=False, password_length=KEY_CHARACTERS
            ),
        )
