"""The README is short, and what a reader tries first is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.sessions import INTERPRETERS, commands

ROOT = Path(__file__).parents[2]
MAX_WORDS = 900


def test_the_readme_is_short() -> None:
    """Counts as `wc -w` does: code, tables and links count, too."""
    assert len((ROOT / "README.md").read_text().split()) <= MAX_WORDS


@pytest.mark.parametrize("page", ["README.md", "docs/tour.md", "docs/clients.md"])
def test_every_program_shows_what_it_prints_and_so_is_run(page: str) -> None:
    text = (ROOT / page).read_text()
    shown = re.findall(rf"^```(?:{'|'.join(INTERPRETERS)})$", text, re.MULTILINE)
    run = [command for command in commands(text) if command.text.startswith(tuple(INTERPRETERS.values()))]
    assert len(run) == len(shown)
