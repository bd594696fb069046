"""The options of `headrace dev`, checked, and the environment that they make. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.units import format_duration

# The application's own defaults, where an option and the environment say nothing.
DEFAULT_STATE_AGE_MS = 60_000
DEFAULT_TRIM_AGE_MS = 900_000
DEFAULT_APPEND_TIMEOUT_MS = 3_000
DEFAULT_REQUEST_TIMEOUT_MS = 5_000
_SETTING_OF_OPTION = {
    "seal_records": "HEADRACE_SEAL_RECORDS",
    "seal_bytes": "HEADRACE_SEAL_BYTES",
    "seal_age": "HEADRACE_SEAL_AGE_MS",
    "trim_age": "HEADRACE_TRIM_AGE_MS",
    "state_age": "HEADRACE_STATE_AGE_MS",
}


class InvalidSettings(ValueError):
    """The options contradict each other or a promise; the message says what would be accepted."""


@dataclass(frozen=True)
class DevSettings:
    """What to run. `environment` holds the HEADRACE_* settings that the options decide."""

    host: str
    port: int
    api_processes: int
    template: Path
    app: str
    log_level: str
    seed: int
    sweep_every_ms: int | None = None
    seal_age_ms: int | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def from_options(options: Mapping[str, Any], environ: Mapping[str, str]) -> DevSettings:
        """Raises InvalidSettings for a trim age that could lose data, or an open door without keys."""
        chosen = {
            setting: str(options[option])
            for option, setting in _SETTING_OF_OPTION.items()
            if options.get(option) is not None
        }
        if options["cold"]:
            chosen["HEADRACE_COLD"] = "1"
        _require_safe_trim_age({**environ, **chosen})
        chosen.update(_door(options["host"], environ))
        return DevSettings(
            host=options["host"],
            port=options["port"],
            api_processes=options["api_processes"],
            template=options["template"],
            app=options["app"],
            log_level=options["log_level"],
            seed=options["seed"],
            sweep_every_ms=options.get("sweep_every"),
            seal_age_ms=options.get("seal_age"),
            environment=chosen,
        )


def _require_safe_trim_age(environ: Mapping[str, str]) -> None:
    """A writer that relies on an old state must still find the item that occupies its slot."""

    def setting(name: str, default: int) -> int:
        text = environ.get(f"HEADRACE_{name}_MS", "")
        if text and not text.isdigit():
            raise InvalidSettings(f"HEADRACE_{name}_MS is not a number of milliseconds: {text!r}")
        return int(text) if text else default

    state_age_ms = setting("STATE_AGE", DEFAULT_STATE_AGE_MS)
    longest_request_ms = max(
        setting("APPEND_TIMEOUT", DEFAULT_APPEND_TIMEOUT_MS),
        setting("REQUEST_TIMEOUT", DEFAULT_REQUEST_TIMEOUT_MS),
    )
    trim_age_ms = setting("TRIM_AGE", DEFAULT_TRIM_AGE_MS)
    minimum_ms = state_age_ms + longest_request_ms
    if trim_age_ms < minimum_ms:
        raise InvalidSettings(
            f"--trim-age {format_duration(trim_age_ms)} is too short: the minimum is {format_duration(minimum_ms)}, "
            f"the state age ({format_duration(state_age_ms)}) plus the longest request "
            f"({format_duration(longest_request_ms)}). A younger item could vanish under a writer that still relies "
            f"on it. Lower --state-age to trim sooner."
        )


def _door(host: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Settings for a server without keys: allowed on loopback, refused anywhere else."""
    has_keys = bool(environ.get("HEADRACE_API_KEYS") or environ.get("HEADRACE_API_KEYS_SECRET"))
    allowed_open = environ.get("HEADRACE_ALLOW_INSECURE_NO_AUTH") == "1"
    if has_keys or allowed_open:
        return {}
    if not is_loopback(host):
        raise InvalidSettings(
            f"--host {host} lets other machines in, and no API key is set. Set HEADRACE_API_KEYS, for example to "
            f"'s3cret:read+write', or accept anyone's requests with HEADRACE_ALLOW_INSECURE_NO_AUTH=1."
        )
    return {"HEADRACE_ALLOW_INSECURE_NO_AUTH": "1"}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name other than localhost counts as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
