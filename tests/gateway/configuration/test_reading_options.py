"""The setting with which counters of a source count."""

from __future__ import annotations

from pathlib import Path

from gateway.configuration.reader import load_config


def test_only_what_is_written_down_counts_by_itself(tmp_path: Path) -> None:
    """By default only calls count. Counters that repeat calls count only with `count = true`."""
    file = tmp_path / "tollhouse.toml"
    file.write_text("[sources.cursor]\ncount = true\n[sources.vllm]\ncount = false\n")
    assert {"cursor"} == load_config(file, env={}).explicitly_counted_sources


def test_tags_that_separate_conversations_are_stored(tmp_path: Path) -> None:
    file = tmp_path / "tollhouse.toml"
    file.write_text('[sources.my_program]\nlane = ["session", "run", "tag:conversation"]\n')
    assert "conversation" in load_config(file, env={}).kept_tags
