"""The contract's own tests of search, aggregates and listings of keys, and the oracle's, through the deployed door.

Each module here is one of `tests/conformance/contract`; the fixtures are those of the deployment. The functions seal and
index after a number of records and segments, never after a time, as the stages need it: a deployment would set the same
variables. A run asks every question of the stage in `ASKED_FULLY` and one of each test on the others; `--full` asks all.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from infra.bundle import LIVE
from tests.conformance.contract.client import Api
from tests.conformance.contract.stages import SEGMENT, Stage, filled, leave_to_full
from tests.deployed.deploy import Stack
from tests.deployed.flow import Flow
from tests.deployed.job_events import Relayed

HERE = Path(__file__).parent
STAGES = ("tail", "sealed", "indexed")
ASKED_FULLY = ("indexed",)  # whose code is the deployed jobs' and the deployed door's
HOUR_MS = str(3_600_000)
SETTINGS = {
    "Sealer": {"HEADRACE_SEAL_RECORDS": str(SEGMENT), "HEADRACE_SEAL_AGE_MS": HOUR_MS},
    "Indexer": {"HEADRACE_INDEX_SEGMENTS": "2", "HEADRACE_INDEX_AGE_MS": HOUR_MS},
}
UPDATE_S = 30


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks `full` what `./run prove` need not ask in the tail and in a segment. See `stages.py`."""
    leave_to_full((item for item in items if item.path.parent == HERE), ASKED_FULLY)


@pytest.fixture(scope="session")
def every_stage(api: Api, stack: Stack, flow: Flow, relayed: Relayed) -> dict[str, Stage]:
    """Streams that hold their records in the tail, in a segment, in an index run."""
    for function, settings in SETTINGS.items():
        _set(stack, stack.physical("AWS::Lambda::Function", holding=function), settings)
    return filled(api, STAGES)


@pytest.fixture(scope="session", params=STAGES)
def stage(request: pytest.FixtureRequest, every_stage: dict[str, Stage]) -> Stage:
    """Returns each stage in turn, settled."""
    return every_stage[request.param].settle()


def _set(stack: Stack, function: str, settings: dict[str, str]) -> None:
    functions = stack.emulator.client("lambda")
    variables = functions.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    functions.update_function_configuration(
        FunctionName=function, Environment={"Variables": {**variables, **settings}}
    )
    deadline = time.monotonic() + UPDATE_S
    while functions.get_function_configuration(FunctionName=function)["LastUpdateStatus"] == "InProgress":
        assert time.monotonic() < deadline
        time.sleep(0.2)  # polls, as deployments do: Lambda announces no end of an update
    version = functions.publish_version(FunctionName=function)["Version"]
    functions.update_alias(FunctionName=function, Name=LIVE, FunctionVersion=version)
