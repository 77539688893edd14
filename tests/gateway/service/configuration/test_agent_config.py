"""The [agent] section: what it takes and what it refuses, in the user's own key names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.service.configuration.reader import load
from gateway.service.configuration.sections import ConfigError


def test_the_section_and_its_environment(tmp_path: Path) -> None:
    """Paths are relative to the file, the environment is stronger."""
    file = tmp_path / "agent.toml"
    file.write_text(
        '[agent]\ngateway = "http://a"\nenrolment_key_file = "e.key"\n[agent.labels]\nteam = "search"\n'
    )
    agent = load(file, env={"TOLLHOUSE_AGENT__GATEWAY": "https://b"}).agent
    expected = ("https://b", tmp_path / "e.key", {"team": "search"})
    assert expected == (agent.gateway, agent.enrolment_key_file, agent.labels)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[agent]\ngateway = "mill:4318"', "agent.gateway must begin with http:// or https://"),
        ('[agent]\ndevice_id = "a b"', "agent.device_id: 1 to 128 letters, digits and any of . _ : @ -"),
        ('[agent]\ngatway = "x"', "unknown key agent.gatway; did you mean agent.gateway?"),
        (
            '[agent]\ngateway = "http://a"\n[upstream]\nbase_url = "http://b"',
            "agent.gateway and upstream.base_url exclude each other: an agent's upstream is its gateway",
        ),
        (
            '[agent]\nenrolment_key_file = "a"\nenrolment_key_env = "B"',
            "agent needs enrolment_key_file or enrolment_key_env, and not both",
        ),
    ],
)
def test_what_cannot_run(tmp_path: Path, text: str, problem: str) -> None:
    """Each with the key at fault."""
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, env={})
    assert [problem] == caught.value.problems
