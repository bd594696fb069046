"""The account and the region that the emulator plays."""

from __future__ import annotations

ACCOUNT = "123456789012"
REGION = "us-east-1"
