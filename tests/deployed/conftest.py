"""The synthesized template with its real artifacts, deployed once into an emulator, for every test of this folder.

The folder is collected only when it is named: `./run prove`, or `uv run pytest tests/deployed [--report FILE]`.
"""

from __future__ import annotations

import json
import platform
import string
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.assembly import Assembly, assemble, read
from infra.doors import SOCKETS_STAGE
from infra.machine import ARM, LAMBDA, X86, Machine
from infra.wheels import matching_python
from tests.conformance.contract.client import TEXT, Api, Stream
from tests.deployed.deploy import Stack, deploy
from tests.deployed.emulator import Emulator, emulator
from tests.deployed.flow import Flow
from tests.deployed.job_events import Relayed, relay
from tests.deployed.template import Reduced, without

SPARK_TYPE = "AWS::EMRServerless::Application"
FUNCTION_TYPE = "AWS::Lambda::Function"
ALARM_TYPE = "AWS::CloudWatch::Alarm"
API_TYPE = "AWS::ApiGatewayV2::Api"
ANSWER_TYPE = "AWS::ApiGatewayV2::RouteResponse"
CANARY_TYPES = {"AWS::CodeDeploy::Application", "AWS::CodeDeploy::DeploymentGroup"}
ARCHITECTURES = {"x86_64": X86, "aarch64": ARM}
FIRST = ("artifacts", "template", "protocol", "topics", "sockets", "features", "flow")
LAST = ("latency", "rollback", "guarded", "removal")
FINDINGS = pytest.StashKey[dict[str, Any]]()
ADMIN_KEY_TYPE = "AWS::SecretsManager::Secret"
SNAPSHOT_S = 90
KNOWN = Path(__file__).parent / "known_differences.toml"
INSTANCES = 16  # as many as the suites' most concurrent case calls at once
WAIT_MS = 15_000  # longer than it takes to call them all
WARM_S = 240
SETTINGS = {"index_age_ms": 60_000}  # or nothing would be indexed for a quarter of an hour


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", type=Path, help="write what was found as JSON")
    parser.addoption(
        "--synthesized", type=Path, help="what `./run synth` has just written, so as not to build it again"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FINDINGS] = {}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Minutes of work: not unless asked for."""
    here = Path(__file__).parent
    asked = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path == here or here in path.parents for path in asked) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes time by itself begins first, what ends the deployment comes last."""

    def place(item: pytest.Item) -> int:
        name = item.path.stem.removeprefix("test_")
        if name in FIRST:
            return FIRST.index(name)
        return len(FIRST) + (1 + LAST.index(name) if name in LAST else 0)

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the findings, and writes them where `--report` says."""
    findings = config.stash[FINDINGS]
    if not findings:
        return
    terminalreporter.section("the deployed template")
    text = json.dumps(findings, indent=2)
    terminalreporter.write_line(text)
    report: Path | None = config.getoption("report", None)
    if report is not None:
        report.write_text(text + "\n")


@pytest.fixture(scope="session")
def findings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Returns what is shown at the end, beside passes and failures."""
    return request.config.stash[FINDINGS]


@pytest.fixture(scope="session")
def machine() -> Machine:
    """This one, with Lambda's Python if there is one here, else with that of the tests."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Machine(
        architecture=ARCHITECTURES[platform.machine()],
        python=LAMBDA.python if matching_python(LAMBDA.python) else here,
    )


@pytest.fixture(scope="session")
def assembly(machine: Machine, tmp_path_factory: pytest.TempPathFactory, findings: dict[str, Any]) -> Assembly:
    """Returns the cloud assembly, functions bundled for this machine."""
    started = time.monotonic()
    made = assemble(outdir=tmp_path_factory.mktemp("assembly"), environment="prod", machine=machine, values=SETTINGS)
    findings["machine"] = {"architecture": machine.architecture, "python": machine.python}
    findings["synthesis_s"] = round(time.monotonic() - started, 1)
    findings["assets_bytes"] = {asset.name: asset.size for asset in made.assets}
    return made


@pytest.fixture(scope="session")
def synthesized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """Returns the cloud assembly, functions bundled for Lambda, as it would be deployed to an account."""
    given: Path | None = request.config.getoption("synthesized")
    return read(given) if given else assemble(outdir=tmp_path_factory.mktemp("synthesized"))


@pytest.fixture(scope="session")
def interpreter(machine: Machine) -> str:
    """Returns an interpreter that the artifacts for this machine run on."""
    python = matching_python(machine.python)
    assert python is not None
    return python


def lacked(resource: dict[str, Any]) -> bool:
    """Returns whether ministack does not make a resource: Spark applications, CodeDeploy's, what says that a route of a
    WebSocket API answers (it answers anyway), and alarms over several metrics, which tests/observability has.
    """
    if resource["Type"] == ALARM_TYPE:
        return "Metrics" in resource["Properties"]
    return resource["Type"] in {SPARK_TYPE, ANSWER_TYPE, *CANARY_TYPES}


@pytest.fixture(scope="session")
def reduced(assembly: Assembly, cloud: Emulator, findings: dict[str, Any]) -> tuple[Reduced, Reduced]:
    """Returns the assembly's templates without what the emulator lacks, the data's first."""
    data, application = (without(stack.template, lacked) for stack in assembly.stacks)
    for id_, resource in data.template["Resources"].items():
        if resource["Type"] == ADMIN_KEY_TYPE:
            # The emulator heeds this spelling of the same wish, and not `ExcludePunctuation`.
            resource["Properties"]["GenerateSecretString"]["ExcludeCharacters"] = string.punctuation
            data.changed[f"{id_}/Properties/GenerateSecretString/ExcludeCharacters"] = string.punctuation
    apis = [id_ for id_, one in application.template["Resources"].items() if one["Type"] == API_TYPE]
    (sockets,) = (id_ for id_ in apis if id_.startswith("WebSocket"))
    (door,) = (id_ for id_ in apis if id_.startswith("Door"))
    # Host names of AWS lead nowhere from here.
    here = {"HEADRACE_SOCKETS_ENDPOINT": (sockets, f"/{SOCKETS_STAGE}"), "HEADRACE_BASE_URL": (door, "")}
    for id_, resource in application.template["Resources"].items():
        variables = resource.get("Properties", {}).get("Environment", {}).get("Variables", {})
        for name in here.keys() & variables.keys():
            of_api, path = here[name]
            there = [f"{cloud.endpoint}/_aws/execute-api/", {"Ref": of_api}, path]
            variables[name] = {"Fn::Join": ["", there]}
            application.changed[f"{id_}/Properties/Environment/Variables/{name}"] = cloud.endpoint
        if id_.startswith(("Api", "Webhook")) and resource["Type"] == FUNCTION_TYPE:  # receivers are on this machine
            variables["HEADRACE_WEBHOOK_LOOPBACK"] = "1"
            application.changed[f"{id_}/Properties/Environment/Variables/HEADRACE_WEBHOOK_LOOPBACK"] = "1"
        if resource.pop("UpdatePolicy", None):  # aliases move at once, without CodeDeploy
            application.changed[f"{id_}/UpdatePolicy"] = ""
            del application.placeholders[f"{id_}/UpdatePolicy/CodeDeployLambdaAliasUpdate/ApplicationName"]
            del application.placeholders[f"{id_}/UpdatePolicy/CodeDeployLambdaAliasUpdate/DeploymentGroupName"]
    findings["resources"] = {
        "removed": application.removed,
        "placeholders": application.placeholders,
        "changed": data.changed | application.changed,
    }
    assert not data.removed, "everything of the data is made"
    return (data, application)


@pytest.fixture(scope="session")
def cloud(interpreter: str) -> Iterator[Emulator]:
    """Yields the emulator."""
    with emulator(interpreter) as running:
        yield running


@pytest.fixture(scope="session")
def stack(assembly: Assembly, reduced: tuple[Reduced, Reduced], cloud: Emulator, findings: dict[str, Any]) -> Stack:
    """Returns the deployed stacks, the snapshot taken."""
    started = time.monotonic()
    made = deploy(assembly, reduced, cloud)
    findings["deployment_s"] = round(time.monotonic() - started, 1)
    findings["resources"]["made"] = dict(sorted(made.types.items()))
    findings["outputs"] = made.outputs
    wait_for_snapshot(made)
    return made


def wait_for_snapshot(stack: Stack) -> None:
    """Waits until the api's snapshot is taken."""
    functions = stack.emulator.client("lambda")
    name = stack.physical("AWS::Lambda::Function", holding="Api")
    deadline = time.monotonic() + SNAPSHOT_S
    while (found := functions.get_function_configuration(FunctionName=name, Qualifier="live"))["State"] == "Pending":
        assert time.monotonic() < deadline, f"the snapshot is not ready after {SNAPSHOT_S} s"
        time.sleep(0.2)  # polls, as deployments do: Lambda announces no end of a snapshot
    assert found["State"] == "Active", found["StateReason"]


@pytest.fixture(scope="session")
def relayed(stack: Stack) -> Iterator[Relayed]:
    """Job-state events go where the deployed rule says."""
    with relay(stack, stack.emulator.emr_endpoint) as running:
        yield running


@pytest.fixture(scope="session")
def api(stack: Stack) -> Iterator[Api]:
    """Yields the deployed API, through its API Gateway, with the key that the deployment made."""
    with open_api(stack) as given:
        yield given


def open_api(stack: Stack) -> Api:
    """Returns the API of a deployment, with the key in its secret."""
    id_ = stack.physical(API_TYPE, holding="Door")
    secrets = stack.emulator.client("secretsmanager")
    key = secrets.get_secret_value(SecretId=stack.outputs["AdminKeySecretArn"])["SecretString"]
    return Api(f"{stack.emulator.endpoint}/_aws/execute-api/{id_}", key=key)


@pytest.fixture(scope="session")
def warm_api(api: Api) -> Api:
    """Returns the API after it has started as many instances of the function as suites need: a cold start is CPU time that
    a case may not have.
    """
    with Api(api.url, key=api.key, http=httpx.Client(timeout=WARM_S, trust_env=False)) as patient:
        stream = patient.stream()
        end = stream.end

        def wait(_: int) -> None:
            stream.read(live="long-poll", offset=end, timeout_ms=str(WAIT_MS))

        with ThreadPoolExecutor(INSTANCES) as pool:
            list(pool.map(wait, range(INSTANCES)))
    return api


@pytest.fixture(scope="session")
def known_differences() -> dict[str, dict[str, str]]:
    """Returns the names of the cases of each suite that cannot pass here, with the reason."""
    suites = tomllib.loads(KNOWN.read_text())
    return {suite: {case["name"]: case["reason"] for case in cases} for suite, cases in suites.items()}


@pytest.fixture(scope="session")
def roomy(api: Api) -> Api:
    """Returns the API under a second name, by which tests of the contract ask for it."""
    return api


@pytest.fixture
def stream(api: Api) -> Stream:
    """Returns a new, empty JSON stream."""
    return api.stream()


@pytest.fixture
def text(api: Api) -> Stream:
    """Returns a new, empty text stream."""
    return api.stream(TEXT)


@pytest.fixture(scope="session")
def flow(api: Api, stack: Stack, relayed: Relayed) -> Flow:
    """Returns a stream with more records than stay in the tail. It is begun early, to be sealed and indexed while
    other tests run.
    """
    return Flow.begin(api, stack)
