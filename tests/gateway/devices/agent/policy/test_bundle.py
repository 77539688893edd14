"""The files of a policy bundle, read by readers other than the program's own."""

from __future__ import annotations

import base64
import json
import plistlib
import re
import subprocess
import tomllib
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from gateway.devices.agent.assistants import ASSISTANTS
from gateway.devices.agent.policy.bundle import MANIFEST, PROFILE, SIGNATURE, build_bundle
from gateway.devices.agent.policy.signatures import PublicKey, SigningKey, new_private_pem
from gateway.devices.agent.policy.targets import MANAGED, Destination
from tests.acceptance.conftest import ROOT
from tests.tools import program

SIGNING_KEY = SigningKey(new_private_pem())
AGENT = Destination(endpoint="http://127.0.0.1:4318")
DIRECT = Destination(endpoint="https://tollhouse.example.com", key="th_a-secret_KEY", device="$SERIALNUMBER")
ADMX = "{http://schemas.microsoft.com/GroupPolicy/2006/07/PolicyDefinitions}"
# keys that Apple requires in a profile and in each of its payloads
PAYLOAD_KEYS = {"PayloadType", "PayloadIdentifier", "PayloadUUID", "PayloadVersion"}


def made(destination: Destination, *, has_environment: bool = True) -> dict[str, bytes]:
    return build_bundle(
        list(MANAGED.values()), destination, SIGNING_KEY, bundle_number=1, has_environment=has_environment
    )


def test_a_signed_copy_of_the_profile(tmp_path: Path) -> None:
    """The command of the page makes a signed message, in which OpenSSL finds the whole profile. No Mac has read it."""
    command = re.search(
        r"^ +(openssl cms -sign .+)$", (ROOT / "docs/fleet/index.md").read_text(), re.MULTILINE
    )
    assert command is not None
    (tmp_path / "policy/macos").mkdir(parents=True)
    profile = made(AGENT)[PROFILE]
    (tmp_path / f"policy/{PROFILE}").write_bytes(profile)
    files = "-keyout certificate.key -out certificate.pem -subj /CN=tests -nodes -newkey rsa:2048"
    openssl = program("openssl")
    for words in (f"req -x509 {files}", command[1].removeprefix("openssl ")):
        subprocess.run([openssl, *words.split()], cwd=tmp_path, check=True, capture_output=True)
    words = "cms -verify -inform der -in signed.mobileconfig -CAfile certificate.pem -purpose any"
    read_again = subprocess.run([openssl, *words.split()], cwd=tmp_path, check=True, capture_output=True)
    assert read_again.stdout == profile


def read(name: str, content: bytes) -> Any:
    return tomllib.loads(content.decode()) if name.endswith(".toml") else json.loads(content)


def at(settings: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        settings = settings[name]
    return settings


@pytest.mark.parametrize("destination", [AGENT, DIRECT])
def test_equal_inputs_give_equal_bytes(destination: Destination) -> None:
    """A bundle depends only on its inputs. Another address changes the files, but not the ids of the profile."""
    first, second = made(destination), made(destination)
    assert list(first.items()) == list(second.items())
    assert PublicKey(SIGNING_KEY.public_pem).is_valid_signature(first[SIGNATURE], first[MANIFEST])
    third = made(Destination(endpoint="https://other.example.com", key=destination.key))
    assert first[PROFILE] != third[PROFILE]
    assert ids(first[PROFILE]) == ids(third[PROFILE])


def ids(profile: bytes) -> list[tuple[str, str]]:
    root = plistlib.loads(profile)
    return [(part["PayloadIdentifier"], part["PayloadUUID"]) for part in (root, *root["PayloadContent"])]


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini-cli", "qwen-code"])
def test_a_managed_file_has_the_settings_of_the_agent_setup(name: str) -> None:
    """`agent setup` and `agent policy` give an assistant the same values. Only the key in `direct` is added."""
    files = made(AGENT)
    target = MANAGED[name].files["linux"]
    settings = read(target, files[f"linux{target}"])
    for path, value in ASSISTANTS[name].keys(AGENT.endpoint).items():
        assert at(settings, path) == value


def test_a_hook_is_in_the_settings_only_if_it_is_wanted() -> None:
    """The bundle contains Claude Code's hook for every system, and no hook of another assistant."""
    command = "tollhouse agent verdict --session-limit 20"
    files = made(replace(AGENT, hook=command))
    settings = json.loads(files[f"linux{MANAGED['claude-code'].files['linux']}"])
    entry = {"hooks": [{"type": "command", "command": command}]}
    assert {event: [entry] for event in ("UserPromptSubmit", "PreToolUse")} == settings["hooks"]
    payloads = plistlib.loads(files[PROFILE])["PayloadContent"]
    [claude] = [each for each in payloads if each["PayloadType"] == MANAGED["claude-code"].domain]
    assert settings["hooks"] == claude["hooks"]
    others = [name for name in MANAGED if name != "claude-code"]
    assert not any(b"agent verdict" in files[f"linux{MANAGED[name].files['linux']}"] for name in others)
    assert not any(b"agent verdict" in content for content in made(AGENT).values())


def test_the_key_is_in_each_file_that_can_have_it() -> None:
    """In `direct`, each assistant's file has the key, except the files of assistants that read it elsewhere."""
    files = made(DIRECT)
    secret = DIRECT.key.encode()
    with_key = {path for path, content in files.items() if secret in content}
    linux = {name for name in MANAGED if f"linux{MANAGED[name].files['linux']}" in with_key}
    assert linux == {"claude-code", "codex", "copilot"}
    assert "linux/etc/environment.d/50-tollhouse.conf" in with_key
    assert MANIFEST not in with_key
    assert "linux/etc/environment.d/50-tollhouse.conf" not in made(DIRECT, has_environment=False)


@pytest.mark.parametrize("destination", [AGENT, DIRECT])
def test_no_file_names_a_service_or_requests_prompts(destination: Destination) -> None:
    """Tollhouse recognizes an assistant by its service name, and prompts are never requested."""
    files = made(destination)
    del files[SIGNATURE]
    for path, content in files.items():
        text = content.decode("utf-16" if path.endswith(".reg") else "utf-8")
        assert not re.search(r"service[._]?name", text, re.IGNORECASE), path
        assert not re.search(r"(PROMPTS|Prompts|captureContent|user_prompt)\W{1,4}(1|true)", text), path


def test_the_profile_has_the_settings_by_domain() -> None:
    """The profile has one payload per domain. Only the profile has the variable of the MDM."""
    files = made(DIRECT)
    root = plistlib.loads(files[PROFILE])
    payloads = {payload["PayloadType"]: payload for payload in root["PayloadContent"]}
    assert root["PayloadType"] == "Configuration"
    assert payloads.keys() == {assistant.domain for assistant in MANAGED.values() if assistant.domain}
    for part in (root, *root["PayloadContent"]):
        assert part.keys() >= PAYLOAD_KEYS
        assert uuid.UUID(part["PayloadUUID"]).version == 5
        assert part["PayloadVersion"] == 1
    assert len({id for _, id in ids(files[PROFILE])}) == len(payloads) + 1
    claude_code = payloads["com.anthropic.claudecode"]["env"]
    assert claude_code["OTEL_RESOURCE_ATTRIBUTES"] == "device.id=$SERIALNUMBER"
    assert claude_code["OTEL_EXPORTER_OTLP_HEADERS"] == f"authorization={DIRECT.key}"
    codex = base64.b64decode(payloads["com.openai.codex"]["config_toml_base64"])
    assert codex == files["merge/codex.toml"]
    copilot = payloads["com.github.copilot"]["telemetry"]
    assert json.loads(copilot)["resourceAttributes"] == {"device.id": "$SERIALNUMBER"}
    assert payloads["ai.opencode.managed"]["experimental"] == {"openTelemetry": True}
    assert [path for path, content in files.items() if b"SERIALNUMBER" in content] == [PROFILE]


def test_the_launch_agent_sets_the_variables() -> None:
    path = "macos/Library/LaunchAgents/com.tollhouse.environment.plist"
    plist = plistlib.loads(made(DIRECT)[path])
    assert plist["RunAtLoad"] is True
    shell, option, script = plist["ProgramArguments"]
    assert (shell, option) == ("/bin/sh", "-c")
    assert f"/bin/launchctl setenv OTEL_EXPORTER_OTLP_HEADERS authorization={DIRECT.key}" in script.split(
        " && "
    )


def registry(content: bytes) -> dict[tuple[str, str], str]:
    """Read a registry file: (key, name) -> text."""
    assert content.startswith(b"\xff\xfe")
    head, *lines = content.decode("utf-16").split("\r\n")
    assert head == "Windows Registry Editor Version 5.00"
    found, key = {}, ""
    for line in filter(None, lines):
        if line.startswith("["):
            key = line.strip("[]")
            continue
        match = re.fullmatch(r'"((?:[^"\\]|\\.)*)"="((?:[^"\\]|\\.)*)"', line)
        assert match, line
        name, text = (re.sub(r"\\(.)", r"\1", part) for part in match.groups())
        found[key, name] = text
    return found


@pytest.mark.parametrize("name", MANAGED)
def test_the_script_of_jamf_prints_one_result(tmp_path: Path, name: str) -> None:
    """With the installed command, the script for the MDM prints the state. Without an agent, it says so."""
    script = tmp_path / "attribute.sh"
    script.write_bytes(made(AGENT)[f"jamf/{name}.sh"])

    def run(path: str) -> str:
        return subprocess.run(
            ["/bin/sh", script],
            env={"PATH": path, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "<result>no agent</result>\n" == run("/usr/bin:/bin")
    program = tmp_path / "bin/tollhouse"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "<result>$*</result>"\n')
    program.chmod(0o755)
    expected = f"agent status --jamf {name} --config /usr/local/etc/tollhouse/agent.toml"
    assert f"<result>{expected}</result>\n" == run(f"{program.parent}:/usr/bin:/bin")


def test_the_windows_files_agree() -> None:
    """Registry file, template and script have the same values, and the template's texts are all defined."""
    files = made(DIRECT)
    values = registry(files["windows/policy.reg"])
    policies = {key: value for key, value in values.items() if "Policies" in key[0]}
    claude_code = json.loads(policies[r"HKEY_LOCAL_MACHINE\SOFTWARE\Policies\ClaudeCode", "Settings"])
    assert claude_code == json.loads(files["merge/claude-code.json"])
    copilot = policies[r"HKEY_LOCAL_MACHINE\SOFTWARE\Policies\GitHubCopilot", "telemetry"]
    assert json.loads(copilot) == json.loads(files["merge/copilot.json"])["telemetry"]
    template = ET.fromstring(files["windows/policy.admx"])
    in_template = {
        (rf"HKEY_LOCAL_MACHINE\{policy.get('key')}", policy.get("valueName")): policy.findtext(
            f"{ADMX}enabledValue/{ADMX}string"
        )
        for policy in template.iter(f"{ADMX}policy")
    }
    assert in_template == policies
    defined = {
        string.get("id") for string in ET.fromstring(files["windows/en-US/policy.adml"]).iter(f"{ADMX}string")
    }
    used = set(re.findall(r"\$\(string\.(\w+)\)", files["windows/policy.admx"].decode()))
    assert used == defined
    categories = {category.get("name") for category in template.iter(f"{ADMX}category")}
    assert {parent.get("ref") for parent in template.iter(f"{ADMX}parentCategory")} == categories
    detection = files["windows/Detect-TollhousePolicy.ps1"]
    assert detection == files["windows/Set-TollhousePolicy.ps1"].replace(b"$Detect,", b"$Detect = $true,")
    assert detection.count(b"$Detect = $true") == 1
    assert in_script(files["windows/Set-TollhousePolicy.ps1"]) == {
        **{(key.replace("HKEY_LOCAL_MACHINE", "HKLM:"), name): text for (key, name), text in values.items()},
        **{
            (MANAGED[name].files["windows"], ""): json.loads(files[f"merge/{name}.json"])
            for name in ("gemini-cli", "qwen-code", "opencode")
        },
    }


def in_script(content: bytes) -> dict[tuple[str, str], Any]:
    text = content.decode("utf-8-sig")
    assert text.count("\r\n") == text.count("\n")
    literal = r"'((?:[^']|'')*)'"
    rows = re.findall(rf"@\{{ Path = {literal}; Name = {literal}; Text = {literal} \}}", text)
    return {(path, name): value if name else json.loads(value) for path, name, value in rows}


def test_a_text_too_long_for_a_template_is_refused() -> None:
    with pytest.raises(ValueError, match="Windows template allows 1000"):
        made(Destination(endpoint="https://tollhouse.example.com", key="k" * 1000))
