"""The files of the console and of the API reference: who gets them, and how long a browser may keep them."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from functions.api.console.files import OWN, PAGES, Site, site
from tests.unit.api.asgi import Answer, Server
from tests.unit.api.test_access import KEYS

ROOT = Path(__file__).parents[3]
ASSET = f"/console/{site().version}/console.js"


@pytest.fixture(scope="module")
def server() -> Server:
    return Server(KEYS)


@pytest.mark.parametrize("path", ["/", "/docs", ASSET])
def test_files_need_no_key_and_come_whole(server: Server, path: str) -> None:
    answer = server("GET", path)
    assert answer.status == 200
    packed = server("GET", path, {"accept-encoding": "gzip"})
    if len(answer.body) > 1400:
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == answer.body
    head = server("HEAD", path)
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", answer.headers["etag"])
    assert server("POST", path).status == 405
    assert server("POST", path).headers["allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_are_asked_for_again_and_let_nothing_in(server: Server, path: str) -> None:
    answer = server("GET", path)
    assert answer.headers["cache-control"] == "no-cache"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert not re.search(rb"<script(?! (type|defer)[^>]* src=\"/console/)|https?:|style=", answer.body)
    for linked in re.findall(rb'(?:src|href)="([^"]+)"', answer.body):
        assert server("GET", linked).status == 200, linked
    again = server("GET", path, {"if-none-match": f'W/"other", {answer.headers["etag"]}'})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", answer.headers["etag"])


def cached(answer: Answer) -> str:
    assert answer.status == 200
    return answer.headers["cache-control"]


def test_what_pages_use_is_kept_for_good_below_the_version_of_its_release(server: Server) -> None:
    assert cached(server("GET", ASSET)) == "public, max-age=31536000, immutable"
    assert cached(server("GET", "/console/of-another-release/console.js")) == "no-cache"


def test_the_version_changes_with_any_file_and_with_nothing_else() -> None:
    files = {"console.html": b"{version}", "a.js": b"1", "b.css": b"2"}
    first = Site(files)
    assert first.version == Site(dict(reversed(files.items()))).version
    assert first.pages["console.html"].body == first.version.encode()
    for changed in ({"a.js": b"3"}, {"b.css": b"3"}, {"c.js": b"3"}):
        assert Site(files | changed).version != first.version
    assert Site(files | {"console.html": b"<p>{version}"}).version == first.version


@pytest.mark.parametrize(
    "path",
    ["/console", "/console/", "/console/x/", f"/console/{site().version}/none.js", f"{ASSET}/x", "//", "/docs/"],
)
def test_other_paths_are_404_as_before(server: Server, path: str) -> None:
    answer = server("GET", path, key="all")
    assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
    assert answer.headers["cache-control"] == "no-store"


def test_no_file_can_be_reached_from_elsewhere(server: Server) -> None:
    for path in ("/console/x/..%2Ffiles.py", "/console/x/%2e%2e", "/console/../app.py", "/console/x/files.py"):
        assert server("GET", path, key="all").status == 404, path


def test_modules_name_only_modules_that_are_there() -> None:
    names = set(site().assets)
    for path in OWN.glob("*.js"):
        if path.name != "durable-streams.js":
            text = path.read_text()
            assert set(re.findall(r'from "\./([^"]+)"', text)) <= names, path.name
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
            )
    assert set(PAGES) == {path.name for path in OWN.glob("*.html")}


def test_no_file_is_read_before_it_is_asked_for() -> None:
    program = """
import json, sys
from tests.unit.api.asgi import Server
from functions.api.console.files import site
Server()
print(json.dumps([site.cache_info().currsize, "fastapi_swagger" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [0, False]
