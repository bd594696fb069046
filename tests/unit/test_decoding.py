"""Values are decoded by threads at once, also the first of their type."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("cli", "operators", "headrace", "functions", "emr_jobs", "infra", "local")
MANY = """
import sys, threading, msgspec
from headrace import decoding

def made():
    shapes = [msgspec.defstruct("Inner", [("a", list[str] | None, None)])]
    for number in range(8):
        fields = [(f"f{place}", list[str] | int | None, None) for place in range(12)]
        shapes.append(msgspec.defstruct(f"S{number}", [*fields, ("n", shapes[-1] | None, None)]))
    return shapes[-1]

sys.setswitchinterval(1e-6)
read = getattr(decoding, sys.argv[1])
given = {"from_json": b'{"n":{"f1":3}}', "from_msgpack": msgspec.msgpack.encode({"n": {"f1": 3}})}
given = given.get(sys.argv[1], {"n": {"f1": 3}})
for _ in range(20):
    shape, barrier, found = made(), threading.Barrier(6), []

    def run():
        barrier.wait()
        found.append(read(given, shape).n.f1)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3] * 6, found
"""


@pytest.mark.parametrize("read", ["from_json", "from_msgpack", "from_builtins"])
def test_threads_may_meet_a_type_for_the_first_time_at_once(read: str) -> None:
    done = subprocess.run([sys.executable, "-c", MANY, read], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_else_gives_msgspec_a_type_when_it_decodes() -> None:
    """A process whose threads did that could crash with its first requests."""
    found = []
    for path in (path for name in PRODUCT for path in (ROOT / name).rglob("*.py")):
        if path == ROOT / "headrace/decoding.py" or "node_modules" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                is_decode = called.startswith("msgspec.") and node.func.attr == "decode"
                if called == "msgspec.convert" or (is_decode and (len(node.args) > 1 or node.keywords)):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
