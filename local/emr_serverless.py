"""The emulated EMR Serverless: its API for job runs on a loopback port, which runs the real jobs on local Spark.

    python -m local.emr_serverless --port 0

prints `ready http://127.0.0.1:PORT` and serves until SIGTERM or the end of standard input. Java starts with the first
job. `GET /_emulator/events?after=N` returns the events that EventBridge would get; the dispatcher polls it.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from local import access
from local.access import AccessDoor
from local.access_calls import job_calls
from local.emr_runs import JobRuns, Refused, Worker
from local.lifeline import exit_with_parent
from local.spark_worker import SparkWorker

log = logging.getLogger("headrace.emr")
EVENTS_PATH = "/_emulator/events"
_LONGEST_WAIT_SECONDS = 20.0
_RUNS = re.compile(r"/applications/([0-9a-z]+)/jobruns(?:/([0-9a-z]+))?")


class EmrServer(ThreadingHTTPServer):
    """The HTTP server of the emulated EMR Serverless, with a thread that runs its jobs. `url` is its address."""

    daemon_threads = True

    def __init__(self, worker: Worker, port: int = 0, door: AccessDoor | None = None) -> None:
        self.runs = JobRuns(worker)
        self.door = door or AccessDoor()
        super().__init__(("127.0.0.1", port), _Handler)
        threading.Thread(target=self.runs.work, name="job runs", daemon=True).start()

    @property
    def url(self) -> str:
        """Returns the URL on which it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EmrServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Suppresses the log line of each request, because requests are routine polls."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            status, answer, code = 200, self._result_of(body), ""
        except Refused as exc:
            status, answer, code = exc.status, {"message": str(exc)}, exc.code
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if code:
            self.send_header("x-amzn-ErrorType", code)
        self.end_headers()
        self.wfile.write(data)

    def _result_of(self, body: bytes) -> Any:
        if access.is_foreign(self.headers.get("Host", ""), self.headers.get("Origin")):
            raise Refused(403, "AccessDeniedException", access.FOREIGN)
        url = urlsplit(self.path)
        reason = self.server.door.denied(
            self.headers.get("Authorization", ""), lambda: job_calls(self.command, url.path, body)
        )
        if reason:
            log.error("AccessDenied: %s", reason)
            raise Refused(403, "AccessDeniedException", reason)
        query = parse_qs(url.query)
        runs = self.server.runs
        if url.path == EVENTS_PATH:
            wait = min(float(query.get("wait", ["0"])[0]), _LONGEST_WAIT_SECONDS)
            return runs.events(int(query["after"][0]) if "after" in query else None, wait)
        found = _RUNS.fullmatch(url.path)
        if found is None:
            raise Refused(404, "UnknownOperationException", f"the emulator runs jobs and nothing else: {url.path}")
        application, run_id = found.groups()
        match self.command, run_id:
            case "POST", None:
                return runs.start(application, _parsed(body))
            case "GET", None:
                return runs.list(application, query.get("states", []))
            case "GET", str():
                return runs.get(application, run_id)
            case "DELETE", str():
                return runs.cancel(application, run_id)
        raise Refused(405, "UnknownOperationException", f"no such operation: {self.command} {url.path}")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as exc:
        raise Refused(400, "ValidationException", "the body is not JSON") from exc


def main(arguments: list[str] | None = None) -> None:
    """Serves until SIGTERM, SIGINT or the end of standard input. Port 0 means any free port; the ready line names it."""
    parser = argparse.ArgumentParser(prog="python -m local.emr_serverless", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    access.add_options(parser)
    options = parser.parse_args(arguments)
    exit_with_parent()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    server = EmrServer(SparkWorker(), options.port, AccessDoor(options.policies, options.record))
    print(f"ready {server.url}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
