"""The samples of docs/subscriptions.md accept what the server signs, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.subscriptions.signing import SigningKeys

PAGE = Path(__file__).parents[2] / "docs" / "subscriptions.md"
BODY = '{"subscription_id":"bill","description":"ä"}'.encode()


def sample(language: str) -> str:
    """Returns the page's one sample in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def is_genuine_to_python(header: str, body: bytes, jwks: Any, _: Path) -> bool:
    names: dict[str, Any] = {}
    exec(sample("python"), names)
    try:
        names["verify"](header, body, jwks)
    except Exception:  # noqa: BLE001 - whatever it raises is a refusal
        return False
    return True


def is_genuine_to_node(header: str, body: bytes, jwks: Any, folder: Path) -> bool:
    arguments = ", ".join([json.dumps(header), f"Buffer.from('{body.hex()}', 'hex')", json.dumps(jwks)])
    program = folder / "sample.mjs"
    program.write_text(f"{sample('js')}\nconsole.log(isGenuine({arguments}));\n")
    done = subprocess.run(["node", str(program)], capture_output=True, text=True, check=True, timeout=60)
    return {"true": True, "false": False}[done.stdout.strip()]


@pytest.mark.parametrize("is_genuine", [is_genuine_to_python, is_genuine_to_node])
def test_a_sample_accepts_what_was_signed_a_moment_ago_and_nothing_else(is_genuine: Any, tmp_path: Path) -> None:
    keys, others, now_s = SigningKeys.parse("a" * 43), SigningKeys.parse("b" * 43), int(time.time())
    header, jwks = keys.sign(BODY, now_s), keys.jwks(now_s)
    assert is_genuine(header, BODY, jwks, tmp_path)
    assert not is_genuine(header, BODY + b" ", jwks, tmp_path)
    assert not is_genuine(header.replace(f"t={now_s}", f"t={now_s - 1}"), BODY, jwks, tmp_path)
    assert not is_genuine(keys.sign(BODY, now_s - 400), BODY, jwks, tmp_path)
    assert not is_genuine(others.sign(BODY, now_s), BODY, jwks, tmp_path)
