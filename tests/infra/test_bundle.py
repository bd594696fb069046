"""Artifacts hold what they need, and nothing of each other's."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.app import build_app
from infra.bundle import MAX_BYTES, build, copy_sources
from infra.wheels import locked_requirements

NEVER_SHIPPED = {"moto", "aws-cdk-lib", "pytest", "uvicorn", "pyspark", "pandas", "click"}


def _names(artifact: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", locked_requirements(artifact), re.MULTILINE))


def test_the_api_ships_the_web_framework_and_what_reads_indexes() -> None:
    names = _names("api")
    assert {"fastapi", "mangum", "pynamodb", "pyarrow", "numpy", "obstore", "pysimdjson"} <= names
    assert not names & NEVER_SHIPPED


def test_the_sealer_ships_arrow_and_no_web_framework() -> None:
    names = _names("sealer")
    assert {"pyarrow", "pynamodb"} <= names
    assert not names & (NEVER_SHIPPED | {"fastapi", "mangum"})


@pytest.mark.parametrize("artifact", ["indexer", "relay", "folder"])
def test_other_workers_ship_neither_arrow_nor_spark_nor_the_web_framework(artifact: str) -> None:
    names = _names(artifact)
    assert {"pynamodb", "xxhash"} <= names
    assert not names & (NEVER_SHIPPED | {"fastapi", "mangum", "pyarrow", "numpy"})


def test_what_posts_webhooks_ships_no_client_of_aws_and_no_signing_key_library() -> None:
    assert not _names("webhook") & (NEVER_SHIPPED | {"boto3", "botocore", "pynamodb", "fastapi", "pyarrow", "pynacl"})


def test_dependencies_are_locked_by_hash() -> None:
    requirements = locked_requirements("api")
    assert requirements.count("==") <= requirements.count("--hash=sha256:")


@pytest.mark.parametrize(
    ("artifact", "other"),
    [
        ("api", "sealer"),
        ("sealer", "api"),
        ("indexer", "sealer"),
        ("relay", "api"),
        ("folder", "relay"),
        ("webhook", "api"),
    ],
)
def test_an_artifact_holds_the_library_and_one_function(tmp_path: Path, artifact: str, other: str) -> None:
    copy_sources(artifact=artifact, target=tmp_path)
    assert (tmp_path / "headrace" / "__init__.py").exists()
    assert (tmp_path / "functions" / "__init__.py").exists()
    assert (tmp_path / "functions" / artifact / "__init__.py").exists()
    assert not (tmp_path / "functions" / other).exists()
    assert {path.name for path in tmp_path.iterdir()} == {"headrace", "functions"}
    assert not list(tmp_path.rglob("__pycache__"))


def test_an_artifact_that_lambda_would_refuse_is_refused_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install_too_much(*, target: Path, **_: object) -> None:
        with (target / "large.so").open("wb") as library:
            library.truncate(MAX_BYTES + 1)

    monkeypatch.setattr("infra.wheels.install", install_too_much)
    monkeypatch.setattr("infra.wheels.compile_all", lambda *_, **__: True)
    with pytest.raises(ValueError, match="artifact too large: name=api"):
        build(artifact="api", target=tmp_path)


@pytest.mark.parametrize(
    ("context", "problem"), [({"architecture": "mips"}, "architecture"), ({"python": "2.7"}, "Python")]
)
def test_a_machine_that_nothing_is_built_for_is_refused(context: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=f"unknown {problem}: "):
        build_app(context=context)


def test_functions_run_on_what_they_were_built_for() -> None:
    app = build_app(context={"architecture": "x86_64", "python": "3.12", "aws:cdk:bundling-stacks": []})
    template = app.synth().get_stack_by_name("headrace-dev").template
    functions = [
        one["Properties"] for one in template["Resources"].values() if one["Type"] == "AWS::Lambda::Function"
    ]
    assert {(one["Runtime"], *one["Architectures"]) for one in functions} == {("python3.12", "x86_64")}


@pytest.mark.parametrize("artifact", ["api", "sealer", "indexer", "relay", "folder", "webhook"])
def test_a_function_imports_only_what_it_ships(artifact: str) -> None:
    shipped = {name.replace("_", "-") for name in _names(artifact)} | {"headrace"}
    missing = sorted(
        module
        for module, names in importlib.metadata.packages_distributions().items()
        if not shipped & {name.lower().replace("_", "-") for name in names}
    )
    program = f"""
import sys, pkgutil, importlib, functions.{artifact} as root
sys.modules.update(dict.fromkeys({missing!r}))  # importing one of them raises ModuleNotFoundError
for module in pkgutil.iter_modules(root.__path__, root.__name__ + "."):
    if module.name.rpartition(".")[2] not in ("handler", "instance"):  # they read their environment
        importlib.import_module(module.name)
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
