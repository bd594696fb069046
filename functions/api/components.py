"""Settings to adapters, once for each process."""

from __future__ import annotations

from collections.abc import Callable

from functions.api.door import timeouts
from functions.api.door.access import Access, Keyring, Keys, check_exposure, parse
from functions.api.door.waiting import on_lambda
from functions.api.parts import Parts, assemble
from functions.metrics import ApiMetric
from functions.wiring import Wiring, open_wiring
from headrace.clock import SystemClock


def build() -> Parts:
    """The parts of this process, from its environment.

    Raises:
        SettingsError: the environment makes no sense.
        AccessError: the keys are malformed, or there are none where there must be.
    """
    wiring = open_wiring(ApiMetric, dynamodb_timeout_s=timeouts.DYNAMODB_S, s3_read_timeout_s=timeouts.OBJECT_STORE_S)
    return assemble(wiring.stores, _access(wiring), wiring.meter)


def _access(wiring: Wiring[ApiMetric]) -> Keys:
    settings = wiring.settings

    def check(access: Access) -> None:
        check_exposure(
            access, host=settings.host, on_lambda=on_lambda(), allow_insecure=settings.allow_insecure_no_auth
        )

    if settings.api_keys or not settings.api_keys_secret:
        access = parse(settings.api_keys)
        check(access)
        return access
    read = _secret_reader(settings.api_keys_secret, wiring)
    return Keyring(read, SystemClock(), age_ms=settings.keys_age_ms, check=check)


def _secret_reader(name: str, wiring: Wiring[ApiMetric]) -> Callable[[], str]:
    """Reads the text of a Secrets Manager secret. A request may wait for it. No connection is kept for a snapshot."""
    client = wiring.client("secretsmanager", read_timeout_s=1.0, tries=2)

    def read() -> str:
        try:
            return str(client.get_secret_value(SecretId=name)["SecretString"])
        finally:
            client.close()

    return read
