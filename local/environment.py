"""The environment variables that make a process use the emulator instead of AWS."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

from local.access_calls import REGION, access_key

# Values, not secrets: the emulator checks no signature, but the SDK insists on signing.
_FIXED = {
    "AWS_ACCESS_KEY_ID": "AKIAHEADRACEEMULATOR",
    "AWS_SECRET_ACCESS_KEY": "emulator",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    # Otherwise the SDK puts the account id into host names, which lead away from the endpoint.
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
    "AWS_EC2_METADATA_DISABLED": "true",
    # A person's own profile must never be used by accident.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
# Where a session of this process would look for a person's configuration: nowhere.
_IMPERSONAL: dict[str, tuple[None, list[str], str | None, None]] = {
    "profile": (None, [], None, None),
    "config_file": (None, [], os.devnull, None),
    "credentials_file": (None, [], os.devnull, None),
}


def aws_environment(endpoint: str, emr_endpoint: str = "") -> dict[str, str]:
    """Returns the AWS SDK's variables for the emulator at `endpoint`, and for its EMR Serverless."""
    found = {**_FIXED, "AWS_ENDPOINT_URL": endpoint}
    if emr_endpoint:
        found["AWS_ENDPOINT_URL_EMR_SERVERLESS"] = emr_endpoint
    return found


def as_role(role: str) -> dict[str, str]:
    """Returns the variables that make a process sign as `role` (a logical id of the template); none if the role is
    empty.
    """
    return {"AWS_ACCESS_KEY_ID": access_key(role)} if role else {}


def client(service: str, endpoint: str) -> Any:
    """Returns a boto3 client of the emulator, whatever this process's environment variables say."""
    # Half a second that `headrace dev --help` need not wait for.
    from botocore.config import Config

    config = Config(
        account_id_endpoint_mode="disabled",
        retries={"mode": "standard", "total_max_attempts": 2},
        connect_timeout=5,
        s3={"addressing_style": "path"},
    )
    with _one_at_a_time:
        return _session().client(service, endpoint_url=endpoint, config=config)


# A session is not thread-safe; its clients are.
_one_at_a_time = threading.Lock()


@cache
def _session() -> Any:
    """Returns the session of all clients of this process: it keeps the services' models, which take 0.1 s to read."""
    import boto3
    import botocore.session

    return boto3.session.Session(
        botocore_session=botocore.session.Session(session_vars=_IMPERSONAL),
        aws_access_key_id=_FIXED["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=_FIXED["AWS_SECRET_ACCESS_KEY"],
        region_name=REGION,
    )
