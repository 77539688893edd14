"""The file with the activity of sources, on a disk that cannot take it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.devices.agent import activity
from gateway.devices.agent.activity import ActivityRecorder, read_activity
from spool.log.values import Commit


def commit(source: str) -> Commit:
    return Commit(seconds=0.0, flush_seconds=0.0, terms={("ai-telemetry", "accepted", source): 1})


async def test_a_full_disk_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If the file of activity cannot be written, no task ends with an error that nobody reads. The next report writes
    everything.
    """
    monkeypatch.setattr(activity, "WRITE_AFTER_S", 0.0)
    missing = tmp_path / "missing"
    recorder = ActivityRecorder(missing, now=lambda: 1_790_000_000.0)
    with caplog.at_level(logging.WARNING):
        recorder.note_commit(commit("codex"))
        await _written()
    assert ["the activity of the sources could not be written"] == [each.message for each in caplog.records]
    missing.mkdir()
    recorder.note_commit(commit("claude_code"))
    await _written()
    assert {"codex", "claude_code"} == read_activity(missing).keys()
    await recorder.stop()


async def _written() -> None:
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == "sources"]
    await asyncio.gather(*tasks)
