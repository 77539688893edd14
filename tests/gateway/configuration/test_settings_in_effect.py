"""The effective settings: each value as users write it, with its origin and without secrets."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

from gateway.configuration.reader import ENVIRONMENT, FILE, FLAG, load_config, setting_origins
from gateway.configuration.sections import Config
from gateway.configuration.settings_in_effect import CHANGED, DEFAULT, SettingInEffect, settings_in_effect

SECRET = "hunter2"
FILE_TEXT = f"""
[server]
listen = "127.0.0.1:9001"
[spool]
hold = "20s"
retention = "8d"
[upstream]
base_url = "https://costs.example:8443/{SECRET}/v2?token={SECRET}"
proxy = "http://proxy.example:3128"
[[upstream.keys]]
name = "costs"
secret_env = "COSTS_SECRET"
use_cases = ["Send AI Telemetry"]
[[destinations]]
name = "hook"
type = "webhook"
url = "https://hooks.example/{SECRET}"
headers = {{ "X-Token" = "{SECRET}" }}
"""
ENV = {"TOLLHOUSE_SPOOL__HOLD": "30s", "TOLLHOUSE_SOURCES__LITELLM__COUNT": "false", "TOLLHOUSE_KEY": SECRET}
FLAGS = {"server.grpc_listen": "127.0.0.1:9002", "data_dir": None}


def found(tmp_path: Path) -> dict[str, SettingInEffect]:
    """Return the effective settings of a file, environment variables and a flag."""
    path = tmp_path / "tollhouse.toml"
    path.write_text(FILE_TEXT)
    config = load_config(path, env=ENV, flags=FLAGS)
    return {
        each.name: each for each in settings_in_effect(config, setting_origins(path, env=ENV, flags=FLAGS))
    }


def test_every_setting_is_there_once() -> None:
    """
    Each setting appears once, with its name, its description, and its value in the notation of the file.
    """
    shown = {each.name: each for each in settings_in_effect(Config())}
    names = set[str]()
    for section in fields(Config):
        value = getattr(Config(), section.name)
        names |= (
            {f"{section.name}.{each.name}" for each in fields(value)}
            if is_dataclass(value)
            else {section.name}
        )
    assert names == set(shown)
    assert shown["spool.hold"].value == "10s"
    assert shown["spool.max_bytes"].value == "10GiB"
    assert shown["spool.max_bytes"].words.startswith("maximum disk space of the queue")
    assert {DEFAULT} == {each.source for each in shown.values()}


def test_the_last_that_gives_a_setting_is_named(tmp_path: Path) -> None:
    """
    The origin is the last source that sets a value: flags override environment variables, which override the
    file. Unknown flags and variables are no origin.
    """
    shown = found(tmp_path)
    names = ("spool.retention", "spool.hold", "sources", "server.grpc_listen", "destinations", "data_dir")
    assert [FILE, ENVIRONMENT, ENVIRONMENT, FLAG, FILE, DEFAULT] == [shown[name].source for name in names]
    assert shown["spool.retention"].value == "8d"
    assert shown["spool.hold"].value == "30s"


def test_unknown_origins_distinguish_only_default_values(tmp_path: Path) -> None:
    """
    If the origins are unknown, as for a command that finds no server, only default values are distinguished
    from changed ones.
    """
    path = tmp_path / "tollhouse.toml"
    path.write_text(FILE_TEXT)
    sources = {each.name: each.source for each in settings_in_effect(load_config(path, env={}))}
    assert sources["spool.hold"] == CHANGED
    assert sources["spool.max_bytes"] == DEFAULT


def test_no_secret_is_shown(tmp_path: Path) -> None:
    """
    Headers show only their names, and addresses only scheme and host. Variables and files of keys are
    named, not read.
    """
    shown = found(tmp_path)
    assert SECRET not in str(shown)
    assert "https://costs.example:8443/..." == shown["upstream.base_url"].value
    assert "http://proxy.example:3128" == shown["upstream.proxy"].value
    key = {"name": "costs", "secret_env": "COSTS_SECRET", "use_cases": ["Send AI Telemetry"]}
    assert [key] == shown["upstream.keys"].value
    hook = {
        "name": "hook",
        "type": "webhook",
        "url": "https://hooks.example/...",
        "headers": {"X-Token": "set"},
    }
    assert [hook] == shown["destinations"].value
