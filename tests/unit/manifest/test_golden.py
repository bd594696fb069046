"""Manifests written by earlier builds stay readable. The files in `golden/` are never written again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.manifest.manifest import ManifestPage, decode, decode_page
from tests.unit.manifest.samples import CLOSED, controlled, grown

GOLDEN = Path(__file__).parent / "golden"


def test_a_manifest_of_version_1_is_read() -> None:
    found = decode((GOLDEN / "v1.manifest.json.zst").read_bytes(), "golden")
    assert found == controlled(grown(grown(None, 5, base=100), 2, 3, base=100), extension=CLOSED)


def test_a_sealed_page_of_version_1_is_read() -> None:
    page = msgspec.json.decode((GOLDEN / "v1.page.descriptor.json").read_bytes(), type=ManifestPage)
    assert decode_page((GOLDEN / "v1.page.json.zst").read_bytes(), page) == grown(None, 1, 2, 3).open_page


def test_a_page_of_pages_of_version_1_is_read() -> None:
    page = msgspec.json.decode((GOLDEN / "v1.page-of-pages.descriptor.json").read_bytes(), type=ManifestPage)
    leaf = msgspec.json.decode((GOLDEN / "v1.page.descriptor.json").read_bytes(), type=ManifestPage)
    assert decode_page((GOLDEN / "v1.page-of-pages.json.zst").read_bytes(), page) == (leaf, leaf)
