"""Checks the options of `headrace dev`, and turns them into environment variables. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.units import format_duration
from functions.access import AccessError, parse_hosts
from functions.hosts import is_loopback
from functions.metrics import METRICS_FILE
from headrace.settings import Settings, SettingsError, UnsafeTrimAge

_CHECKED = (
    "HEADRACE_STATE_AGE_MS",
    "HEADRACE_TRIM_AGE_MS",
    "HEADRACE_APPEND_TIMEOUT_MS",
    "HEADRACE_REQUEST_TIMEOUT_MS",
    "HEADRACE_MERGE_SEGMENTS",
)
_SETTING_OF_OPTION = {
    "seal_records": "HEADRACE_SEAL_RECORDS",
    "seal_bytes": "HEADRACE_SEAL_BYTES",
    "seal_age": "HEADRACE_SEAL_AGE_MS",
    "trim_age": "HEADRACE_TRIM_AGE_MS",
    "state_age": "HEADRACE_STATE_AGE_MS",
    "index_age": "HEADRACE_INDEX_AGE_MS",
    "index_segments": "HEADRACE_INDEX_SEGMENTS",
    "compact_fanout": "HEADRACE_COMPACT_FANOUT",
    "merge_segments": "HEADRACE_MERGE_SEGMENTS",
    "merge_age": "HEADRACE_MERGE_AGE_MS",
    "merge_retire": "HEADRACE_MERGE_RETIRE_MS",
    "index_jobs": "HEADRACE_INDEX_JOBS",
}


class InvalidSettings(ValueError):
    """The options contradict each other or would break a guarantee; the message says what is accepted."""


@dataclass(frozen=True)
class DevSettings:
    """The settings of `headrace dev`. `environment` holds the HEADRACE_* variables that the options set."""

    host: str
    port: int
    api_processes: int
    template: Path
    app: str
    sockets: str
    log_level: str
    seed: int
    function_url: bool = False
    sweep_every_ms: int | None = None
    seal_age_ms: int | None = None
    record: Path | None = None
    data: Path | None = None
    verbose: bool = False
    require_key: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def from_options(options: Mapping[str, Any], environ: Mapping[str, str]) -> DevSettings:
        """Checks the options and returns the settings. Raises InvalidSettings for an invalid setting, a trim age that
        could lose data, or an open server without keys.
        """
        chosen = {
            setting: str(options[option])
            for option, setting in _SETTING_OF_OPTION.items()
            if options.get(option) is not None
        }
        if options["cold"]:
            chosen["HEADRACE_COLD"] = "1"
        if options.get("metrics_file") is not None:
            chosen[METRICS_FILE] = str(Path(options["metrics_file"]).absolute())
        _require_sound({**environ, **chosen})
        has_keys = bool(environ.get("HEADRACE_API_KEYS") or environ.get("HEADRACE_API_KEYS_SECRET"))
        if options.get("require_key"):
            if has_keys:
                raise InvalidSettings(
                    "--require-key takes its keys from a secret of its own: unset HEADRACE_API_KEYS"
                )
            if options.get("state_file") is None:
                raise InvalidSettings("--require-key needs --state-file: by it `headrace key` finds the keys")
            has_keys = True
        hosts = ",".join(options.get("allow_host", ()))
        chosen.update(_door(options["host"], hosts, environ, has_keys=has_keys))
        return DevSettings(
            host=options["host"],
            port=options["port"],
            api_processes=options["api_processes"],
            template=options["template"],
            app=options["app"],
            sockets=options["sockets"],
            log_level=options["log_level"],
            seed=options["seed"],
            function_url=options.get("function_url", False),
            sweep_every_ms=options.get("sweep_every"),
            seal_age_ms=options.get("seal_age"),
            record=options.get("record"),
            data=options["data"].absolute() if options.get("data") is not None else None,
            verbose=options.get("verbose", False),
            require_key=options.get("require_key", False),
            environment=chosen,
        )


def _require_sound(environ: Mapping[str, str]) -> None:
    """Raises InvalidSettings if the ages contradict each other. Above all, a writer with an old state must still find
    the item that occupies its slot.
    """
    try:
        Settings.from_environment({name: environ.get(name, "") for name in _CHECKED})
    except UnsafeTrimAge as exc:
        given, minimum_ms = exc.settings, exc.settings.minimum_trim_age_ms
        raise InvalidSettings(
            f"--trim-age {format_duration(given.trim_age_ms)} is too short: the minimum is "
            f"{format_duration(minimum_ms)}, the state age ({format_duration(given.state_age_ms)}) plus the longest "
            f"request ({format_duration(minimum_ms - given.state_age_ms)}). A younger item could vanish under a writer "
            f"that still relies on it. Lower --state-age to trim sooner."
        ) from exc
    except SettingsError as exc:
        raise InvalidSettings(str(exc)) from exc


def _door(host: str, allowed_hosts: str, environ: Mapping[str, str], *, has_keys: bool) -> dict[str, str]:
    """Returns the settings of the address to listen on, and of the hosts to obey without keys. Raises InvalidSettings if
    other machines can reach the address, and there are neither keys nor the permission to run without them; or if one
    of the hosts is none.
    """
    allowed_open = environ.get("HEADRACE_ALLOW_INSECURE_NO_AUTH") == "1"
    if not has_keys and not allowed_open and not is_loopback(host):
        raise InvalidSettings(
            f"--host {host} lets other machines in, and no API key is set. Use --require-key, set HEADRACE_API_KEYS, for "
            f"example to 's3cret:read+write', or accept anyone's requests with HEADRACE_ALLOW_INSECURE_NO_AUTH=1."
        )
    try:
        hosts = parse_hosts(allowed_hosts or environ.get("HEADRACE_ALLOWED_HOSTS", ""), allow_insecure=allowed_open)
    except AccessError as exc:
        raise InvalidSettings(f"--allow-host: {exc}") from exc
    # Never empty: the emulated function is started as if it were open.
    return {"HEADRACE_HOST": host, "HEADRACE_ALLOWED_HOSTS": ",".join(sorted(hosts)) or "localhost"}
