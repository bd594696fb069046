"""A page in Debian's headless Chromium: it runs a module's `journey`, and tells this process what that returned."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

WAIT_S = 60
_PAGE = """<!doctype html><meta charset="utf-8"><script type="module">
import { journey } from "/%s";
const tell = (outcome) => fetch("/outcome", { method: "POST", body: JSON.stringify(outcome) });
journey(...%s).then((seen) => tell({ seen }), (error) => tell({ error: String(error) }));
</script>"""


def run_page(module: Path, *arguments: object) -> Any:
    """Runs `journey` of a module with these arguments in a page, and returns what it returned. Fails if it threw."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("chromium is needed: apt-get install chromium")
    outcomes: Queue[Any] = Queue()
    page = _PAGE % (module.name, json.dumps(arguments).replace("<", "\\u003c"))
    served = {
        "/": ("text/html", page.encode()),
        f"/{module.name}": ("text/javascript", module.read_bytes()),
    }

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = served.get(self.path, ("text/plain", b""))
            self._answer(kind, body)

        def do_POST(self) -> None:
            outcomes.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self._answer("text/plain", b"")

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as pages, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
        browser = subprocess.Popen(
            [chromium, *options, f"--user-data-dir={profile}", f"http://127.0.0.1:{pages.server_port}/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            outcome = outcomes.get(timeout=WAIT_S)
        finally:
            browser.terminate()
            browser.wait(10)
            pages.shutdown()
    assert "error" not in outcome, outcome["error"]
    return outcome["seen"]
