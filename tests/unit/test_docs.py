"""The documentation names tests, settings and limits: each must exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.query.engine.context import Budget
from headrace.query.engine.groups import MAX_GROUPS, MAX_PRINTED_BYTES
from headrace.query.engine.sources import TAIL_BYTES
from headrace.query.language.search_request import DEFAULT_SIZE, MAX_SIZE, MAX_TIMEOUT_MS
from headrace.settings import PREFIX, Settings
from tests.budget import read_table

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for path, name in re.findall(r"`(?:tests/)?([\w/]+\.py)::(\w+)`", page.read_text()):
        source = ROOT / "tests" / path
        assert source.exists(), path
        assert re.search(rf"^(?:async )?def {name}\(", source.read_text(), re.MULTILINE), f"{path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_operations_lists_every_setting() -> None:
    documented = set(re.findall(rf"`({PREFIX}[A-Z_]+)`", (ROOT / "docs" / "operations.md").read_text()))
    assert {PREFIX + name.upper() for name in Settings.__struct_fields__} <= documented


def test_operations_has_the_limits_of_the_engine() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    budget = Budget()
    assert (
        f"| `query/engine/context.py` `Budget` | {budget.segments} segments, {budget.payload_bytes >> 20} MiB |"
        in text
    )
    assert f"| `query/engine/sources.py` `TAIL_BYTES` | {TAIL_BYTES >> 20} MiB |" in text
    assert f"| `query/engine/groups.py` | {MAX_GROUPS:,}; {MAX_PRINTED_BYTES >> 20} MiB |" in text
    assert f"| `query/language/search_request.py` | {DEFAULT_SIZE}, {MAX_SIZE}; {MAX_TIMEOUT_MS:,} ms |" in text


def test_verification_has_the_budget_of_every_folder() -> None:
    text = (ROOT / "docs/verification.md").read_text()
    budgets, _ = read_table()
    assert {
        folder: int(cost) for folder, cost in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)
    } == budgets
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("*/test_*.py")}
    assert folders - {"deployed"} == set(budgets)
