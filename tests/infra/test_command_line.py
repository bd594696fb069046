"""The CDK's command line is pinned, and what is wrong is said in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_command_line_of_the_cdk_is_pinned_and_locked() -> None:
    """The newest one refuses an assembly, or reads one that nobody has tried."""
    wanted = json.loads((ROOT / "package.json").read_text())
    version = wanted["devDependencies"]["aws-cdk"]
    assert version[0].isdigit()
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]["node_modules/aws-cdk"]
    assert locked["version"] == version
    assert locked["integrity"]
    assert wanted["engines"]["node"] == ">=20"
    assert not [page.name for page in (ROOT / "docs").glob("*.md") if "npx aws-cdk" in page.read_text()]


def test_a_wrong_context_is_a_sentence_and_no_banner_is_before_it(tmp_path: Path) -> None:
    environment = {**os.environ, "CDK_OUTDIR": str(tmp_path), "CDK_CONTEXT_JSON": '{"headrace:request_brust": 1}'}
    done = subprocess.run(
        [sys.executable, "-m", "infra.app"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    expected = "headrace: unknown value headrace:request_brust: did you mean headrace:request_burst?"
    assert done.stderr.splitlines() == [expected]
