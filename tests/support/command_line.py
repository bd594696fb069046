"""Runs `headrace` in this process: as a process of its own, a command costs a second of CPU, most of it for imports."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from unittest import mock

import boto3
from click.testing import CliRunner

from cli.main import main


def headrace(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Runs a command with `--json`, and returns its exit code and the document that it printed.

    What the command changes in the environment variables, and what boto3 learned from them, ends with it.
    """
    with (
        mock.patch.dict(os.environ, environment or {}),
        mock.patch.object(boto3, "DEFAULT_SESSION", None),
    ):
        done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.stdout, done.stderr
    return done.exit_code, json.loads(done.stdout)
