"""A start of the streaming function: its wrapper script, its runtime client, and the first byte of its first answer."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.starts.measure import EVENTS, Start, StartFailed

SCRIPT = Path("functions") / "api" / "streaming" / "bootstrap"
PATIENCE_S = 60.0


class _Api(ThreadingHTTPServer):
    """A Runtime API with one invocation. `moments` gets the time of the first question and of the answer's first byte."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.moments: queue.Queue[float] = queue.Queue()
        self.over = threading.Event()
        self.asked = 0


class _Handler(BaseHTTPRequestHandler):
    server: _Api
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked += 1
        if self.server.asked > 1:
            self.server.over.wait()
            return
        self.server.moments.put(time.perf_counter())
        body = json.dumps(EVENTS["api"]).encode()
        self.send_response(200)
        self.send_header("Lambda-Runtime-Aws-Request-Id", "r")
        self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + PATIENCE_S) * 1000)))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(1)
        self.server.moments.put(time.perf_counter())
        self.server.over.wait()

    def log_message(self, format: str, *args: object) -> None:
        pass


def start(folder: Path, python: str, environment: Mapping[str, str]) -> Start:
    """Starts the function once, from its artifact, as Lambda would through the wrapper.

    Raises:
        StartFailed: it did not answer.
    """
    api = _Api()
    threading.Thread(target=api.serve_forever, daemon=True).start()
    began = time.perf_counter()
    process = subprocess.Popen(
        [str(folder / SCRIPT), python],
        env={
            "PATH": os.defpath,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            "LAMBDA_TASK_ROOT": str(folder),
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api.server_address[1]}",
            "AWS_LAMBDA_FUNCTION_NAME": "streaming",
            "HEADRACE_API_KEYS": "k",
            **environment,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        asked = api.moments.get(timeout=PATIENCE_S)
        answered = api.moments.get(timeout=PATIENCE_S)
    except queue.Empty as exc:
        raise StartFailed(f"the streaming function did not answer: exit code {process.poll()}") from exc
    finally:
        process.kill()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = -9
        api.over.set()
        api.shutdown()
        api.server_close()
    told: dict[str, Any] = {"answer": None, "modules": frozenset(), "files": ()}
    return Start(
        **told,
        import_ms=(asked - began) * 1000,
        answer_ms=(answered - asked) * 1000,
        cpu_ms=(used.ru_utime + used.ru_stime) * 1000,
        total_ms=(answered - began) * 1000,
    )
