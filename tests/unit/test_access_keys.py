"""The list of access keys: entries are made, kept as written, and never shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.access_keys import ALL, AccessError, Scope, format_keys, make_entry, parse_keys, scope_names

SCOPES = st.integers(1, ALL.value).map(Scope)
PREFIXES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters=",|")), max_size=3)


@given(SCOPES, PREFIXES)
def test_an_entry_says_what_was_asked_for_or_is_refused(scopes: Scope, prefixes: list[str]) -> None:
    try:
        entry = make_entry("k3y", scopes, prefixes)
    except AccessError:
        assert "" in prefixes or prefixes[-1] != prefixes[-1].rstrip()
        return
    others = parse_keys("first, second:r:a|b ,third:d")
    assert parse_keys(format_keys([*others, entry])) == [*others, entry]
    assert (entry.scopes, entry.prefixes) == (scopes, tuple(prefixes))


def test_entries_stay_as_they_were_written() -> None:
    assert format_keys(parse_keys(" a, b:rw:x|y,,c:r+d ")) == "a,b:rw:x|y,c:r+d"
    assert scope_names(Scope.ADMIN | Scope.READ) == ["read", "admin"]
    assert [make_entry("k", ALL, names).text for names in ([], ["a:"])] == ["k", "k::a:"]


def test_a_key_is_in_no_repr_and_no_message() -> None:
    assert "s3cret" not in repr(parse_keys("s3cret:read"))
    for text in ("s3cret,s3cret", "a:s3cret", "s3cret\ud800"):
        with pytest.raises(AccessError) as caught:
            parse_keys(text)
        assert "s3cret" not in str(caught.value)
