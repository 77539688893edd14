"""The `[agent]` section of the configuration."""

from __future__ import annotations

from pathlib import Path

from gateway.configuration.reader import load_config


def test_the_section_and_its_environment(tmp_path: Path) -> None:
    """Paths in the section are relative to the file, and environment variables override the file."""
    file = tmp_path / "agent.toml"
    file.write_text(
        '[agent]\ngateway = "http://a"\nenrolment_key_file = "e.key"\n[agent.labels]\nteam = "search"\n'
    )
    agent = load_config(file, env={"TOLLHOUSE_AGENT__GATEWAY": "https://b"}).agent
    expected = ("https://b", tmp_path / "e.key", {"team": "search"})
    assert expected == (agent.gateway, agent.enrolment_key_file, agent.labels)
