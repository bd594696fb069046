"""Offline synths for the whole folder: tests look at what the code says now, not at the committed file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aws_cdk.assertions import Template

import infra  # noqa: F401 - before aws_cdk, for it quietens jsii
from tests.infra.resources import Resources
from tests.infra.synths import synthesize


@pytest.fixture(scope="session")
def synthesized() -> str:
    """Production's template as text."""
    return synthesize()


@pytest.fixture(scope="session")
def template(synthesized: str) -> Template:
    """For matching properties."""
    return Template.from_string(synthesized)


@pytest.fixture(scope="session")
def resources(synthesized: str) -> Resources:
    """For laws over all resources of a type."""
    return Resources.parse(synthesized)


@pytest.fixture(scope="session")
def resources_of() -> Callable[..., Resources]:
    """Production's resources with values replaced."""
    return lambda **values: Resources.parse(synthesize(**values))
