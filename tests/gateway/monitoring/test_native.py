"""Use of the compiled module appears in the log, in a metric, and in the output of the doctor."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from gateway.cli.doctor import NOTE, OK, diagnose_machine
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.monitoring.metrics import ProcessMetrics
from gateway.service.assembly.services import load_compiled_module
from spool.packed.native import MODULE
from tests.spool.test_native import module


def told(config: Config, caplog: pytest.LogCaptureFixture) -> tuple[float | None, list[str], str, str]:
    """Return the metric's value, the logged actions, and the doctor's status and text."""
    metrics = ProcessMetrics(lambda: ())
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="gateway.service.assembly.services"):
        native = load_compiled_module(config, metrics)
    labels = {"version": native.version, "loaded": str(int(native.is_on))}
    value = metrics.registry.get_sample_value("tollhouse_native_info", labels)
    [line] = [one for one in diagnose_machine(config) if one.about == "compiled module"]
    return value, [record.__dict__["action"] for record in caplog.records], line.status, line.words


def test_state_of_the_module_is_in_metric_doctor_and_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The metric and the doctor report the state of the module. The log has a line only if the module is installed and
    cannot be used.
    """
    config = Config(data_dir=tmp_path)
    monkeypatch.setitem(sys.modules, MODULE, module())
    assert (1.0, [], OK, "on, 9.9") == told(config, caplog)
    value, actions, status, words = told(replace(config, server=ServerSettings(native=False)), caplog)
    assert value == 1.0
    assert actions == []
    assert status == NOTE
    assert "server.native is false" in words
    monkeypatch.setitem(sys.modules, MODULE, None)
    value, actions, status, words = told(config, caplog)
    assert value == 1.0
    assert actions == []
    assert status == NOTE
    assert MODULE in words
    # the module has another interface than this Tollhouse needs
    monkeypatch.setitem(sys.modules, MODULE, ModuleType(MODULE))
    value, actions, status, words = told(config, caplog)
    assert value == 1.0
    assert actions == ["native_missing"]
    assert status == NOTE
    assert "Build it again" in words
