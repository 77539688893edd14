"""
Configuration from file, environment and flags. All problems are reported together, in the user's own names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.reader import FILE, load_config, setting_origins
from gateway.configuration.sections import Config
from gateway.configuration.settings_in_effect import settings_in_effect
from gateway.configuration.values import ConfigError, split_address
from spool.settings import MIB


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tollhouse.toml"
    path.write_text(text)
    return path


def problems(path: Path | None = None, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, env=env)
    return caught.value.problems


def test_everything_has_a_default() -> None:
    config = load_config(env={})
    assert "127.0.0.1:4318" == config.server.listen
    assert config.spool.hold == 10.0
    assert config.spool.retention == 7 * 86400.0
    assert config.spool.duplicate_ids == 10_000_000
    assert Path.cwd() / "tollhouse-data" == config.data_dir


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """Relative paths are relative to the file, whatever working directory the service manager sets."""
    config = load_config(written(tmp_path, 'data_dir = "data"\n[prices]\nfile = "prices.json"'), env={})
    assert config.data_dir == tmp_path / "data"
    assert config.prices.file == tmp_path / "prices.json"


def test_environment_overrides_the_file_and_flags_override_both(tmp_path: Path) -> None:
    path = written(tmp_path, '[server]\nlisten = "127.0.0.1:1"\n[spool]\nhold = "1s"')
    env = {"TOLLHOUSE_SERVER__LISTEN": "127.0.0.1:2", "TOLLHOUSE_SPOOL__HOLD": "2s", "HOME": "/"}
    config = load_config(path, env=env, flags={"server.listen": "127.0.0.1:3", "data_dir": None})
    assert config.server.listen == "127.0.0.1:3"
    assert config.spool.hold == 2.0


def test_data_directory_is_read_from_the_environment() -> None:
    """
    `TOLLHOUSE_DATA_DIR` needs no section. Other variables without a section, such as `TOLLHOUSE_KEY`,
    are not settings.
    """
    assert "/srv/x" == str(load_config(env={"TOLLHOUSE_DATA_DIR": "/srv/x", "TOLLHOUSE_KEY": "k"}).data_dir)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"64MiB"', 64 * MIB),
        ('"4 mib"', 4 * MIB),
        ("1048576", MIB),
        ('"1.5GiB"', 1536 * MIB),
        ('"100MB"', 100_000_000),
    ],
)
def test_sizes(tmp_path: Path, text: str, expected: int) -> None:
    assert (
        expected
        == load_config(written(tmp_path, f"[upstream]\nbatch_bytes = {text}"), env={}).upstream.batch_bytes
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [('"500ms"', 0.5), ('"10s"', 10.0), ('"5m"', 300.0), ("3", 3.0)]
)
def test_durations(tmp_path: Path, text: str, seconds: float) -> None:
    assert seconds == load_config(written(tmp_path, f"[spool]\nhold = {text}"), env={}).spool.hold


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"TOLLHOUSE_SPOOL__LATE_WINDOW": "25h"}, "spool.late_window must be at most 1d"),
        ({"TOLLHOUSE_SERVER__ACCEPT_BEARER": "perhaps"}, "server.accept_bearer must be true or false"),
        ({"TOLLHOUSE_DATA_DIR__X": "x"}, "data_dir must be a path"),
        ({"TOLLHOUSE_SPOL__HOLD": "1s"}, "unknown key spol; did you mean spool?"),
    ],
)
def test_a_problem_is_a_sentence(env: dict[str, Any], sentence: str) -> None:
    """Problems in the environment read like those in a file (`test_refusals.py`)."""
    assert [sentence] == problems(**env)


def test_a_file_that_is_no_toml_says_where(tmp_path: Path) -> None:
    """If the file is no TOML, the message contains the parser's line and column."""
    assert "line 3" in problems(written(tmp_path, "data_dir = [\n\n= 3"))[0]


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    assert "No such file" in problems(tmp_path / "none.toml")[0]


def test_secrets_are_named_by_file_only() -> None:
    """No section has a field for a secret, so no log line or message can print one."""
    assert not [name for name in vars(Config()) if "secret" in name]


def test_addresses_split() -> None:
    assert split_address("[::1]:4318") == ("::1", 4318)
    assert split_address("127.0.0.1:0") == ("127.0.0.1", 0)


ADDRESSES = {
    "upstream.base_url": '[upstream]\nbase_url = "{}"',
    "upstream.ai_telemetry_url": '[upstream]\nai_telemetry_url = "{}"',
    "upstream.proxy": '[upstream]\nproxy = "{}"',
    "destinations[0].url": '[[destinations]]\nname = "hook"\ntype = "webhook"\nurl = "{}"',
    "notify[0].url": '[[notify]]\nname = "hook"\ntype = "webhook"\nsecret_file = "s"\nurl = "{}"',
    "notify[0].proxy": '[[notify]]\nname = "chat"\ntype = "slack"\nurl = "https://chat.example"\nproxy = "{}"',
    "oidc.proxy": """
        [oidc]
        issuer = "https://idp.example"
        client_id = "tollhouse"
        console = "https://tollhouse.example/console/"
        proxy = "{}"
        """,
    "agent.gateway": '[agent]\ngateway = "{}"',
    "reconciliation.pull[0].base_url": """
        [[reconciliation.pull]]
        name = "logs"
        source = "litellm_spend_logs"
        key_file = "/etc/key"
        base_url = "{}"
        """,
    "container.upload_url": '[container]\nupload_url = "{}"',
}


@pytest.mark.proves("an address with a user name")
@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("user", ["ann:hunter2", "ann", ""])
def test_no_address_holds_a_user(tmp_path: Path, name: str, user: str) -> None:
    """
    Even an empty user is rejected. The message does not repeat the value, because it may contain a password.
    """
    path = written(tmp_path, ADDRESSES[name].format(f"https://{user}@costs.example:8443"))
    assert [f"{name} must not contain a user or a password: remove the part before the @"] == problems(path)


def test_works_councils_get_other_defaults(tmp_path: Path) -> None:
    """`privacy.works_council` changes defaults only. A value that is set stays, and is shown with its source."""
    path = written(tmp_path, "[privacy]\nworks_council = true\n[work]\npeople = true")
    config = load_config(path, env={})
    assert (5, True, "drop") == (config.privacy.min_group, config.work.people, config.work.branch)
    shown = {each.name: each.source for each in settings_in_effect(config, setting_origins(path, env={}))}
    assert (FILE, FILE) == (shown["privacy.min_group"], shown["work.people"])
    assert 5 == load_config(env={"TOLLHOUSE_PRIVACY__WORKS_COUNCIL": "true"}).privacy.min_group
    config = load_config(written(tmp_path, "[privacy]\nworks_council = false"), env={})
    assert (0, True, "keep") == (config.privacy.min_group, config.work.people, config.work.branch)
    wrong = problems(written(tmp_path, '[privacy]\nworks_council = "yes"'))
    assert ["privacy.works_council must be true or false"] == wrong
    assert ["work must be a table"] == problems(
        written(tmp_path, "work = 1\n[privacy]\nworks_council = true")
    )
