"""Settings from the environment."""

from __future__ import annotations

import pytest

from headrace.settings import Settings, SettingsError


def test_what_is_absent_or_empty_has_its_default() -> None:
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment({"HEADRACE_WAL_TABLE": "", "HEADRACE_COLD": "", "OTHER": "x"}) == Settings()


def test_every_setting_has_its_variable() -> None:
    found = Settings.from_environment(
        {
            "HEADRACE_WAL_TABLE": "w",
            "HEADRACE_COLD": "1",
            "HEADRACE_ALLOW_INSECURE_NO_AUTH": "true",
            "HEADRACE_STATE_AGE_MS": "10",
            "HEADRACE_TRIM_AGE_MS": "9000",
        }
    )
    assert (found.wal_table, found.cold, found.allow_insecure_no_auth) == ("w", True, True)
    assert (found.state_age_ms, found.trim_age_ms) == (10, 9000)


@pytest.mark.parametrize("value", ["x", "1.5", "ten", "-"])
def test_a_value_of_another_type_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="HEADRACE_"):
        Settings.from_environment({"HEADRACE_SPILL_BYTES": value})


def test_a_trim_age_that_a_fenced_writer_could_meet_is_refused() -> None:
    age = {
        "HEADRACE_STATE_AGE_MS": "1000",
        "HEADRACE_APPEND_TIMEOUT_MS": "6000",
        "HEADRACE_REQUEST_TIMEOUT_MS": "5000",
    }
    assert Settings.from_environment({**age, "HEADRACE_TRIM_AGE_MS": "7000"}).minimum_trim_age_ms == 7000
    with pytest.raises(SettingsError, match="minimum=7000"):
        Settings.from_environment({**age, "HEADRACE_TRIM_AGE_MS": "6999"})


def test_entries_of_which_two_fill_a_page_are_refused() -> None:
    """A trim removes an entry once it has seen two that follow it: it never removed one of a page with two."""
    with pytest.raises(SettingsError, match="HEADRACE_SPILL_BYTES is above 262144: received=262145"):
        Settings.from_environment({"HEADRACE_SPILL_BYTES": "262145"})
    assert Settings.from_environment({"HEADRACE_SPILL_BYTES": "262144"}).spill_bytes == 262_144


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(SettingsError, match="HEADRACE_MAX_TOPICS is below 0"):
        Settings.from_environment({"HEADRACE_MAX_TOPICS": "-1"})
    assert Settings.from_environment({"HEADRACE_MAX_TOPICS": "0"}).max_topics == 0


@pytest.mark.parametrize("value", ["1", "-1"])
def test_merging_one_segment_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="MERGE_SEGMENTS"):
        Settings.from_environment({"HEADRACE_MERGE_SEGMENTS": value})
    assert Settings.from_environment({"HEADRACE_MERGE_SEGMENTS": "0"}).merge_segments == 0


@pytest.mark.parametrize("name", ["HEADRACE_INDEX_SEGMENTS", "HEADRACE_COMPACT_FANOUT"])
def test_runs_of_no_segments_or_merged_from_one_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment({name: "0"})


def test_an_index_waits_a_quarter_of_an_hour_and_metrics_a_minute_unless_told_otherwise() -> None:
    settings = Settings()
    assert (settings.index_age_ms, settings.metrics_interval_ms) == (900_000, 60_000)
