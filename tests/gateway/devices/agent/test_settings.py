"""Settings files are restored byte for byte if unedited, and key by key if their owner edited them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.devices.agent.assistants import ASSISTANTS, Assistant
from gateway.devices.agent.hook_settings import hook_command_problem
from gateway.devices.agent.settings import (
    BACKUP,
    EditedSettings,
    NotEditable,
    edit_settings,
    undo_settings,
    write_settings,
)

ENDPOINT = "http://127.0.0.1:4318"
OTHER = "http://127.0.0.1:9999"

REALISTIC = {
    "claude-code": b'{\n  "model": "opus",\n  "env": {\n    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317"\n  }\n}\n',
    "codex": b'model = "gpt-5"\n\n[otel]\nenvironment = "dev"\n\n[otel.exporter.otlp-grpc]\nendpoint = "https://x"\n',
    "gemini-cli": b'{\r\n    "ui": {"theme": "Dark"},\r\n    "telemetry": {"enabled": false, "logPrompts": true}\r\n}',
    "qwen-code": b'{"tools": {"autoAccept": true}}',
    "copilot": b'// user settings\n{\n\t"editor.tabSize": 4, // four\n\t/* "github.copilot.chat.x": 1 */\n}\n',
}


def settle(directory: Path, assistant: Assistant, path: Path, endpoint: str = ENDPOINT) -> EditedSettings:
    return write_settings(directory, assistant, edit_settings(assistant, path, endpoint))


def tree(assistant: Assistant, path: Path) -> object:
    return assistant.editor.parse_settings(path.read_text())


@pytest.mark.parametrize("name", ASSISTANTS)
def test_there_and_back(tmp_path: Path, name: str) -> None:
    """
    A write changes only telemetry keys, and the backup is the original. A second write finds no difference,
    and undo is exact.
    """
    assistant, path = ASSISTANTS[name], tmp_path / "settings"
    path.write_bytes(REALISTIC[name])
    path.chmod(0o640)
    before = tree(assistant, path)
    edited = settle(tmp_path / "agent", assistant, path)
    for key, value in assistant.keys(ENDPOINT).items():
        assert value == assistant.editor.get_value(path.read_text(), key)
    assert isinstance(before, dict)
    ours = {key[0] for key in assistant.keys("")}
    after = tree(assistant, path)
    assert isinstance(after, dict)
    assert {key: value for key, value in before.items() if key not in ours} == {
        key: value for key, value in after.items() if key not in ours
    }
    assert edited.backup is not None and REALISTIC[name] == edited.backup.read_bytes()
    assert not edit_settings(assistant, path, ENDPOINT + "/").has_changes
    undo_settings(tmp_path / "agent", assistant, path)
    assert REALISTIC[name] == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [path.name] == [each.name for each in tmp_path.iterdir() if each.is_file()]


@pytest.mark.parametrize("name", ASSISTANTS)
def test_a_file_that_was_not_there(tmp_path: Path, name: str) -> None:
    """
    If the settings file does not exist, it is created with its folder, with access for the owner only. Undo
    deletes the file.
    """
    assistant, path = ASSISTANTS[name], tmp_path / "home" / "settings"
    assert settle(tmp_path / "agent", assistant, path).unified_diff().startswith("--- /dev/null\n")
    assert 0o600 == path.stat().st_mode & 0o777
    undo_settings(tmp_path / "agent", assistant, path)
    assert not path.exists()


@pytest.mark.parametrize("name", ASSISTANTS)
def test_a_file_that_was_edited_meanwhile(tmp_path: Path, name: str) -> None:
    """If the owner has edited the file meanwhile, the edits stay, and undo restores the telemetry keys."""
    assistant, path = ASSISTANTS[name], tmp_path / "settings"
    path.write_bytes(REALISTIC[name])
    before = tree(assistant, path)
    settle(tmp_path / "agent", assistant, path)
    path.write_text(assistant.editor.put_value(path.read_text(), ("mine", "own"), "yes"), newline="")
    undo_settings(tmp_path / "agent", assistant, path)
    assert isinstance(before, dict)
    assert {**before, "mine": {"own": "yes"}} == tree(assistant, path)


def test_a_second_write_keeps_the_first_original(tmp_path: Path) -> None:
    """After a change of the endpoint, undo still restores the first original."""
    assistant, path = ASSISTANTS["claude-code"], tmp_path / "settings.json"
    path.write_bytes(REALISTIC["claude-code"])
    settle(tmp_path / "agent", assistant, path)
    settle(tmp_path / "agent", assistant, path, OTHER)
    assert OTHER == json.loads(path.read_text())["env"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
    undo_settings(tmp_path / "agent", assistant, path)
    assert REALISTIC["claude-code"] == path.read_bytes()


def test_undo_preserves_edits_between_two_writes(tmp_path: Path) -> None:
    """
    After the owner edits the file between two writes, undo restores only the telemetry keys instead of
    the whole original.
    """
    assistant, path = ASSISTANTS["claude-code"], tmp_path / "settings.json"
    path.write_text("{}")
    settle(tmp_path / "agent", assistant, path)
    path.write_text(path.read_text().replace('{\n  "env"', '{\n  "model": "opus",\n  "env"'))
    settle(tmp_path / "agent", assistant, path, OTHER)
    undo_settings(tmp_path / "agent", assistant, path)
    assert {"model": "opus"} == json.loads(path.read_text())


def test_a_telemetry_key_that_its_owner_changed_meanwhile(tmp_path: Path) -> None:
    """A key that the owner changed keeps the owner's value, while undo restores the other keys."""
    assistant, path = ASSISTANTS["claude-code"], tmp_path / "settings.json"
    path.write_bytes(REALISTIC["claude-code"])
    settle(tmp_path / "agent", assistant, path)
    path.write_text(
        path.read_text().replace(f'_OTLP_ENDPOINT": "{ENDPOINT}"', '_OTLP_ENDPOINT": "http://collector:4318"')
    )
    undo_settings(tmp_path / "agent", assistant, path)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    assert {"model": "opus", "env": env} == json.loads(path.read_text())


@pytest.mark.parametrize("name", ASSISTANTS)
def test_a_backup_that_somebody_removed(tmp_path: Path, name: str) -> None:
    """Without the backup, undo only removes the telemetry keys and keeps the file."""
    assistant, path = ASSISTANTS[name], tmp_path / "settings"
    path.write_text("" if name == "codex" else "{}")
    text = path.read_text()
    path.write_text(assistant.editor.put_value(text, ("mine", "own"), "yes"))
    settle(tmp_path / "agent", assistant, path)
    (tmp_path / f"settings{BACKUP}").unlink()
    undo_settings(tmp_path / "agent", assistant, path)
    assert {"mine": {"own": "yes"}} == tree(assistant, path)


def test_an_original_is_never_written_over(tmp_path: Path) -> None:
    """If another agent directory writes the file, the first backup is kept and undo restores it."""
    assistant, path = ASSISTANTS["claude-code"], tmp_path / "settings.json"
    path.write_bytes(REALISTIC["claude-code"])
    settle(tmp_path / "agent", assistant, path)
    settle(tmp_path / "another agent", assistant, path, OTHER)
    assert REALISTIC["claude-code"] == (tmp_path / f"settings.json{BACKUP}").read_bytes()
    undo_settings(tmp_path / "another agent", assistant, path)
    assert json.loads(REALISTIC["claude-code"]) == json.loads(path.read_text())


def test_failed_write_leaves_no_backup(tmp_path: Path) -> None:
    """
    A write fails and leaves no backup. If the owner later creates the file, that file is the original and is
    restored byte for byte.
    """
    assistant, path = ASSISTANTS["gemini-cli"], tmp_path / "home" / "settings.json"
    edited = edit_settings(assistant, path, ENDPOINT)
    (tmp_path / "home").write_text("in the way")
    with pytest.raises(OSError, match="home"):
        write_settings(tmp_path / "agent", assistant, edited)
    (tmp_path / "home").unlink()
    path.parent.mkdir()
    path.write_text('{"telemetry": {"enabled": false}}')
    settle(tmp_path / "agent", assistant, path)
    undo_settings(tmp_path / "agent", assistant, path)
    assert '{"telemetry": {"enabled": false}}' == path.read_text()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """
    If the settings are a symbolic link, for example into a repository of dotfiles, the target is changed.
    """
    real, link = tmp_path / "dotfiles.json", tmp_path / "settings.json"
    real.write_text("{}")
    link.symlink_to(real)
    settle(tmp_path / "agent", ASSISTANTS["gemini-cli"], link)
    assert link.is_symlink() and json.loads(real.read_text())["telemetry"]["enabled"]
    assert (tmp_path / f"dotfiles.json{BACKUP}").exists()
    undo_settings(tmp_path / "agent", ASSISTANTS["gemini-cli"], link)
    assert "{}" == real.read_text()


@pytest.mark.parametrize("content", [b"{broken", b"\xff\xfe{}", b'{"env": "text"}'])
def test_a_file_that_cannot_be_changed(tmp_path: Path, content: bytes) -> None:
    """If the agent cannot change the file, it reports an error and leaves the file unchanged."""
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    with pytest.raises(NotEditable):
        settle(tmp_path / "agent", ASSISTANTS["claude-code"], path)
    assert [("settings.json", content)] == [(each.name, each.read_bytes()) for each in tmp_path.iterdir()]


def test_undo_without_a_backup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotEditable, match="nothing to undo"):
        undo_settings(tmp_path, ASSISTANTS["codex"], tmp_path / "config.toml")


def test_codex_reports_its_events_alone(tmp_path: Path) -> None:
    """An exporter that Codex already had is replaced. Codex's environment and prompt settings stay."""
    path = tmp_path / "config.toml"
    path.write_bytes(REALISTIC["codex"])
    settle(tmp_path / "agent", ASSISTANTS["codex"], path)
    exporter = {"otlp-http": {"endpoint": f"{ENDPOINT}/v1/logs", "protocol": "binary"}}
    assert {"environment": "dev", "exporter": exporter} == tomllib.loads(path.read_text())["otel"]


HOOK = "tollhouse agent verdict --session-limit 20"
OWN_HOOK = {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint"}]}
LATER_HOOK = {"hooks": [{"type": "command", "command": "tollhouse agent status"}]}


def commands(path: Path, event: str) -> list[str]:
    entries = json.loads(path.read_text()).get("hooks", {}).get(event, [])
    return [hook["command"] for entry in entries for hook in entry["hooks"]]


def hooked(directory: Path, path: Path, hook: str) -> EditedSettings:
    assistant = ASSISTANTS["claude-code"]
    return write_settings(directory, assistant, edit_settings(assistant, path, ENDPOINT, hook=hook))


def test_a_hook_is_written_when_it_is_wanted(tmp_path: Path) -> None:
    """
    Without --hook, `agent setup` writes no hook. A second command replaces the first one, and the user's own hooks
    stay.
    """
    agent, path = tmp_path / "agent", tmp_path / "settings.json"
    original = json.dumps({"model": "opus", "hooks": {"PreToolUse": [OWN_HOOK]}}).encode()
    path.write_bytes(original)
    settle(agent, ASSISTANTS["claude-code"], path)
    assert ["lint"] == commands(path, "PreToolUse")
    hooked(agent, path, HOOK)
    assert ["lint", HOOK] == commands(path, "PreToolUse")
    assert [HOOK] == commands(path, "UserPromptSubmit")
    assert not edit_settings(ASSISTANTS["claude-code"], path, ENDPOINT, hook=HOOK).has_changes
    hooked(agent, path, f"/usr/bin/{HOOK} --closed")
    assert ["lint", f"/usr/bin/{HOOK} --closed"] == commands(path, "PreToolUse")
    undo_settings(agent, ASSISTANTS["claude-code"], path)
    assert original == path.read_bytes()


@pytest.mark.parametrize("own", [{}, {"hooks": {"PreToolUse": [OWN_HOOK]}}])
def test_a_hook_that_its_owner_wrote_meanwhile_stays(tmp_path: Path, own: dict[str, object]) -> None:
    """After an edit, undo removes only the entries that Tollhouse wrote."""
    agent, path = tmp_path / "agent", tmp_path / "settings.json"
    path.write_text(json.dumps(own))
    hooked(agent, path, HOOK)
    edited = json.loads(path.read_text())
    edited["hooks"]["PreToolUse"].insert(0, LATER_HOOK)
    path.write_text(json.dumps(edited))
    hooked(agent, path, HOOK)
    undo_settings(agent, ASSISTANTS["claude-code"], path)
    left = ["tollhouse agent status", *(["lint"] if own else [])]
    assert left == commands(path, "PreToolUse")
    assert {"hooks": {"PreToolUse"}} == {
        name: {*value} for name, value in json.loads(path.read_text()).items()
    }


def test_hooks_that_are_no_list_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"hooks": {"PreToolUse": {}}}')
    with pytest.raises(NotEditable):
        hooked(tmp_path / "agent", path, HOOK)


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "tollhouse agent verdict --sesion-limit 20",
        "tollhouse agent",
        "tollhouse 'agent",
        "mytollhouse agent verdict",
    ],
)
def test_a_command_that_is_no_verdict_is_refused(command: str) -> None:
    """
    `agent setup` refuses a hook command with a mistake, because it would exit with 2 and so block every prompt.
    """
    assert hook_command_problem(command)
    done = CliRunner().invoke(main, ["agent", "setup", "claude-code", "--hook", command])
    assert (2, True) == (done.exit_code, "is no command such as" in done.stderr)
    other = CliRunner().invoke(main, ["agent", "setup", "codex", "--hook", HOOK])
    assert (2, True) == (other.exit_code, "no hook of codex" in other.stderr)
