"""The documentation names pages, tests, settings and limits: each must exist."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from headrace.query.engine.context import Budget
from headrace.query.engine.groups import MAX_GROUPS, MAX_PRINTED_BYTES
from headrace.query.engine.sources import TAIL_BYTES
from headrace.query.language.search_request import DEFAULT_SIZE, MAX_SIZE, MAX_TIMEOUT_MS
from headrace.settings import PREFIX, Settings
from tests.budget import read_table

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), ROOT / "tests" / "README.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for path, name in re.findall(r"`(?:tests/)?([\w/]+\.py)::(\w+)`", page.read_text()):
        source = ROOT / "tests" / path
        assert source.exists(), path
        assert re.search(rf"^(?:async )?def {name}\(", source.read_text(), re.MULTILINE), f"{path}::{name}"


def _prose(page: Path) -> str:
    """Returns a page without fenced code, and without the brackets of code in a line."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", "", code[0]), text)


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Returns what a link to a page may name behind `#`: its headings, as GitHub and the site spell them, and its ids."""
    text = _prose(page)
    headings = re.findall(r"^#+ (.*?) *$", text, re.MULTILINE)
    words = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    slugs = Counter(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in words)
    # Of headings that are the same, GitHub numbers the later ones with a hyphen, the site with a line.
    return frozenset(slug for slug, count in slugs.items() if count == 1) | set(
        re.findall(r'<a id="([\w-]+)">', text)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", _prose(page)):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in _anchors(file), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_are_lists_to_every_renderer(page: Path) -> None:
    """That of the site wants an empty line before a list, and four columns before what is below an item."""
    before = ""
    for line in _prose(page).splitlines():
        item = re.match(r"( *)(?:[-*]|\d+\.) ", line)
        if item:
            assert len(item[1]) % 4 == 0, line
            assert not before or re.match(r" *(?:[-*]|\d+\.) |  |#", before), f"no empty line before: {line}"
        before = line


def test_the_site_has_every_page_in_its_navigation() -> None:
    text = (ROOT / "zensical.toml").read_text()
    tomllib.loads(text)
    named = [ROOT / name for name in re.findall(r'" = "([\w/.-]+\.md)" \}', text)]
    assert sorted(named) == sorted({*PAGES, ROOT / "index.md"} - {ROOT / "README.md"})


def test_every_section_that_the_product_names_exists() -> None:
    """Advice of `headrace doctor`, texts of alarms and the like name a page and its section."""
    named = set()
    for folder in ("cli", "emr_jobs", "functions", "headrace", "infra", "local", "operators"):
        for source in sorted((ROOT / folder).rglob("*.py")):
            text = source.read_text().replace("{_OPERATIONS}", "docs/operations.md")
            named |= set(re.findall(r"\bdocs/([\w-]+\.md)#([\w-]*\w)(?=[^\w-])", text))
    assert len(named) > 10
    for page, anchor in named:
        assert anchor in _anchors(ROOT / "docs" / page), f"{page}#{anchor}"


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
