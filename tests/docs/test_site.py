"""The documentation as a site, built in a folder of its own. `tests/unit/test_docs.py` follows the links at each push."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("run", "zensical.toml", "pyproject.toml", "uv.lock", "LICENSE", "tests/README.md")


@pytest.mark.full
def test_a_site_is_built_unless_a_link_leads_nowhere(tmp_path: Path) -> None:
    for path in [*(ROOT / name for name in NEEDED), *ROOT.glob("*.md")]:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")

    def build() -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        return subprocess.run(
            [tmp_path / "run", "docs"], cwd="/", env=environment, capture_output=True, text=True, timeout=300
        )

    done = build()
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    pages = {path.stem for path in (tmp_path / "docs").glob("*.md")}
    assert {path.stem for path in (site / "docs").glob("*.html")} == pages
    assert "Headrace" in (site / "index.html").read_text()
    assert 'id="alarm-sealer-silent"' in (site / "docs" / "operations.html").read_text()
    assert (site / "docs" / "dashboard.svg").exists()

    with (tmp_path / "docs" / "deploy.md").open("a") as page:
        page.write("\n[nowhere](operations.md#nowhere)\n")
    done = build()
    assert done.returncode != 0
    assert "anchor does not exist" in done.stdout + done.stderr
