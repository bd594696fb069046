"""The errors that a user of the command line can see, each with an exit code and, if there is one, a hint at what to
do.
"""

from __future__ import annotations

import json
from http import HTTPStatus

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130


class CliError(Exception):
    """An error that ends the command: `message` and `hint` are printed on standard error, and `exit_code` is the exit
    code.
    """

    exit_code = EXIT_REFUSED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadInput(CliError):
    """The command line, or data that it names, is invalid."""

    exit_code = EXIT_USAGE


class Unreachable(CliError):
    """The server did not answer, or stopped answering. The last request may have been applied."""

    exit_code = EXIT_UNREACHABLE


class Refused(CliError):
    """The server answered with an error status."""

    def __init__(self, message: str, hint: str, *, status: int, headers: dict[str, str]) -> None:
        super().__init__(message, hint)
        self.status = status
        self.headers = headers


HINTS = {
    401: "pass --key, set HEADRACE_API_KEY, or save a key: `headrace context add --help`",
    403: "the key lacks the scope for this, or may not use this name",
    404: "`headrace list` shows what exists, `headrace create NAME` creates it",
    405: "check that the URL is that of a stream",
    408: "the outcome is unknown: read the stream's end before sending the same data again",
    409: "`headrace info NAME` shows what the stream is",
    410: "the stream was deleted, or created again: to read the new one, start at --from -1",
    413: "lower --batch-bytes or --batch-records; one record must fit into one request",
    429: "the server is busy: try again later, or with larger batches",
}

CODE_HINTS = {
    "topic_not_found": "`headrace topic list` shows what exists; `topic create` and `queue create` make one",
    "topic_exists_incompatible": "`headrace topic show NAME` shows what it is; its type stays what it is",
    "topic_not_empty": "without --if-empty it is deleted with its records",
    "topic_full": "raise its caps (`headrace topic configure`), or wait until records are acknowledged or deleted",
    "not_a_queue": "`headrace queue list` shows the queues, `headrace queue create NAME` makes one",
    "batch_too_large": "lower --batch-records; a request to a queue names at most 1000 jobs",
    "router_not_found": "`headrace router list` shows what exists",
    "router_cycle": "--allow-cycle accepts it: a record goes around at most 8 times",
    "SUBSCRIPTION_NOT_FOUND": "`headrace subscription create ID` makes one",
    "SUBSCRIPTION_ALREADY_EXISTS": "`headrace subscription show ID` shows it; to change it, delete it and create it again",
    "WEBHOOK_URL_REJECTED": "a webhook is an https URL of a public address; `headrace dev` takes http://localhost, too",
    "event_not_found": "`headrace features ls` shows what is registered, `headrace features register FILE` registers more",
    "unknown_table": "`headrace features ls` shows the tables",
    "feature_not_found": "`headrace features ls TABLE` shows the features of a table",
    "key_parse_failure": "give one KEY for each column of the table's key, in their order, or none for a global table",
    "force_required": "--force makes these changes: what they touch starts again, empty",
    "record_too_large": "data and meta of one record have a limit of 1 MiB",
}
"""Hints for the error codes of topics, queues, subscriptions and feature tables."""


def refusal(what: str, status: int, headers: dict[str, str], body: bytes) -> Refused:
    """Returns the error for a status of 400 or more. `what` names the action, like `append to orders`."""
    reason = envelope_message(body) or phrase(status)
    hint = CODE_HINTS.get(envelope_code(body)) or HINTS.get(status, "")
    if status == 409 and headers.get("stream-closed", "").lower() == "true":
        reason = f"the stream is closed (its end is {headers.get('stream-next-offset', 'unknown')})"
        hint = "it accepts no more records; if an earlier run of the same input closed it, everything is there"
    elif status == 403 and "producer-epoch" in headers:
        epoch = headers["producer-epoch"]
        reason = f"this producer id is in use with epoch {epoch}"
        hint = f"--producer-epoch {epoch} continues that run; a higher epoch starts again and ends the old run"
    elif status == 409 and "producer-expected-seq" in headers:
        reason = f"the server expects request {headers['producer-expected-seq']} of this producer, not this one"
        hint = "use another --producer-id, or a higher --producer-epoch"
    elif status == 409 and "stream-expected-seq" in headers:
        reason = f"Stream-Seq must be greater than {headers['stream-expected-seq']!r}"
        hint = "pass a greater --seq"
    return Refused(f"{what}: {reason} ({status})", hint, status=status, headers=headers)


def phrase(status: int) -> str:
    """Returns the meaning of a status in words, for an answer without a message; `refused` for a status that HTTP does
    not define.
    """
    try:
        return HTTPStatus(status).phrase.lower()
    except ValueError:
        return "refused"


def envelope_message(body: bytes) -> str:
    """Returns the message of an error body `{"error": {"code", "message"}}`, or its path and reason; empty for any other
    JSON object. Of any other body returns the first line, empty for HTML.
    """
    try:
        error = json.loads(body).get("error")
        if isinstance(error, dict):
            reason = str(error.get("message") or error.get("reason") or error.get("code") or "")
            return f"{error['path']}: {reason}" if "reason" in error and error.get("path") else reason
        return str(error or "")
    except (ValueError, RecursionError, AttributeError):
        text = body[:300].decode("utf-8", "replace").strip()
        return text.splitlines()[0] if text and not text.startswith("<") else ""


def envelope_code(body: bytes) -> str:
    """Returns the code of an error body `{"error": {"code", "message"}}`; empty for any other body."""
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, RecursionError, TypeError, LookupError):
        return ""
