"""The client is installed from its wheel into an environment of its own, and used there against a server."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from infra.machine import run
from tests.cli.fake_server import FakeServer
from tests.infra.machines import packed_or_skipped

LIBRARIES = ("boto3", "botocore", "pynamodb", "msgspec", "orjson", "fastapi", "uvicorn", "moto", "pyarrow", "pyspark")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a virtual environment with the wheel and what it depends on, in the versions of `uv.lock`, and nothing
    else.
    """
    folder = tmp_path_factory.mktemp("client")
    environment, locked = folder / "environment", folder / "requirements.txt"
    uv = ("uv", "--color", "never", "--quiet")
    with packed_or_skipped():
        locked.write_text(run([*uv, "export", "--frozen", "--no-default-groups", "--no-emit-project", "--no-hashes"]))
        run([*uv, "build", "--wheel", "--out-dir", str(folder)])
        run([*uv, "venv", "--python", sys.executable, str(environment)])
        (wheel,) = folder.glob("headrace-*.whl")
        install = [*uv, "pip", "install", "--python", str(environment), "--constraint", str(locked), str(wheel)]
        run(install)
    return environment


@pytest.fixture
def url() -> Iterator[str]:
    """Yields the URL of a small server of the protocol."""
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            asked = f"http://{self.headers['host']}{self.path}"
            answer = fake(httpx.Request(self.command, asked, headers=dict(self.headers), content=body))
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name != "content-length":
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.content)

        do_GET = do_HEAD = do_PUT = do_POST = serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def headrace(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed command outside the repository."""
    command = [str(environment / "bin" / "headrace"), *arguments]
    return subprocess.run(command, cwd=environment, env={}, capture_output=True, text=True, timeout=60)


def test_the_client_alone_creates_appends_and_reads(environment: Path, url: str) -> None:
    assert "Commands of headrace[operators]" in headrace(environment, "--help").stdout
    assert headrace(environment, "--version").stdout.startswith("headrace, version ")
    assert headrace(environment, "--url", url, "create", "orders").stdout.startswith("created orders")
    appended = headrace(environment, "--url", url, "append", "orders", "--data", '[{"id": 1.0}, {"id": 2}]')
    assert (appended.returncode, appended.stdout.strip()) == (0, "2"), appended.stderr
    read = headrace(environment, "--url", url, "read", "orders", "--format", "lines")
    assert read.stdout.splitlines() == ['{"id": 1.0}', '{"id": 2}'], read.stderr


def test_no_library_of_the_server_comes_with_it(environment: Path) -> None:
    code = f"import importlib.util as u; print([name for name in {LIBRARIES} if u.find_spec(name)])"
    python = [str(environment / "bin" / "python"), "-c", code]
    assert subprocess.run(python, cwd=environment, capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("command", "extra"),
    [(("doctor",), "operators"), (("index", "rebuild", "orders"), "operators"), (("dev",), "local")],
)
def test_a_command_of_another_part_says_what_to_install(
    environment: Path, command: tuple[str, ...], extra: str
) -> None:
    refused = headrace(environment, *command)
    assert refused.returncode == 1
    assert f"hint: pip install 'headrace[{extra}]'" in refused.stderr
