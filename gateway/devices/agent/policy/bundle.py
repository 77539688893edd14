"""
The files of a policy bundle: Linux and macOS trees, the macOS profile, the Windows files, fragments to merge,
and the signed manifest. Equal inputs give equal bytes.
"""

from __future__ import annotations

import plistlib
import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from gateway.devices.agent.policy import debian, rpm, windows
from gateway.devices.agent.policy.signatures import SigningKey
from gateway.devices.agent.policy.targets import (
    ENVIRONMENT,
    ENVIRONMENT_FILES,
    LINUX,
    MACOS,
    WINDOWS,
    Destination,
    ManagedAssistant,
    telemetry_variables,
)

MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
PROFILE = "macos/tollhouse.mobileconfig"
IDENTIFIER = "com.tollhouse.policy"
CURSOR = """\
Cursor reads no managed telemetry settings on a machine. Set it up in the dashboard of your Cursor team:
see docs/connect/cursor.md.
"""


class BundleFile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """
    A file of the bundle. A file with a `target` is installed there, with this mode and owner, on this `system`.
    """

    path: str
    sha256: str
    system: str = ""
    assistant: str = ""
    target: str = ""
    mode: str = ""
    owner: str = ""
    since: str = ""
    enforced: bool | None = None


class PolicyManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signed list of files. `mode` is "agent" or "direct". A newer bundle has a larger `number`."""

    version: int
    number: int
    mode: str
    endpoint: str
    assistants: list[str]
    files: list[BundleFile]


JAMF = """\
#!/bin/sh
# Jamf extension attribute: the state of {title} on this Mac. Run on Linux by the tests, and not by Jamf.
for config in "/Library/Application Support/Tollhouse/agent.toml" /usr/local/etc/tollhouse/agent.toml; do
  [ -f "$config" ] && break
done
PATH=$PATH:/usr/local/bin:/opt/homebrew/bin
tollhouse agent status --jamf {name} --config "$config" 2>/dev/null || echo "<result>no agent</result>"
"""


def build_bundle(
    assistants: Sequence[ManagedAssistant],
    destination: Destination,
    signing_key: SigningKey,
    *,
    bundle_number: int,
    has_environment: bool,
    deb_version: str = "",
    rpm_version: str = "",
) -> dict[str, bytes]:
    """
    Return the content of each file by its path in the bundle. With `deb_version` or `rpm_version`, packages
    are included.

    The device id is a variable that only an MDM replaces, so it appears only in the macOS profile.
    """
    everywhere = replace(destination, device="")
    files: dict[str, bytes] = {}
    installed: dict[str, BundleFile] = {}

    def add_file_to_bundle(system: str, target: str, content: bytes, assistant: str, **facts: Any) -> None:
        path = f"{system}{target}"
        files[path] = content
        # the assistants of every user read the file, so all users may read it, also if it has a key
        facts |= {"system": system, "target": target, "assistant": assistant, "mode": "0644", "owner": "root"}
        installed[path] = _bundle_file(path, content, **facts)

    for assistant in assistants:
        content = assistant.settings_text(everywhere).encode()
        files[f"merge/{assistant.name}{Path(assistant.files[LINUX]).suffix}"] = content
        for system in (LINUX, MACOS):
            facts = {"since": assistant.since, "enforced": assistant.is_enforced}
            add_file_to_bundle(system, assistant.files[system], content, assistant.name, **facts)
    if has_environment:
        machine = telemetry_variables(everywhere)
        add_file_to_bundle(LINUX, ENVIRONMENT_FILES[LINUX], _build_environment_file(machine), ENVIRONMENT)
        add_file_to_bundle(MACOS, ENVIRONMENT_FILES[MACOS], _build_launch_agent(machine), ENVIRONMENT)
    for assistant in assistants:
        files[f"jamf/{assistant.name}.sh"] = JAMF.format(title=assistant.title, name=assistant.name).encode()
    files[PROFILE] = build_configuration_profile(assistants, destination)
    values, documents = (
        list(_registry_values(assistants, everywhere)),
        list(_windows_settings_files(assistants, everywhere)),
    )
    files |= windows.windows_policy_files(
        values, documents, telemetry_variables(everywhere) if has_environment else {}
    )
    files["cursor.txt"] = CURSOR.encode()
    on_linux = {file.target: files[file.path] for file in installed.values() if file.system == LINUX}
    if rpm_version:
        files[f"linux/{rpm.NAME}-{rpm_version}-{rpm.RELEASE}.noarch.rpm"] = rpm.build_rpm_package(
            on_linux, rpm_version
        )
    if deb_version:
        files[f"linux/tollhouse-policy_{deb_version}_all.deb"] = debian.build_debian_package(
            on_linux, deb_version
        )
    manifest = PolicyManifest(
        version=1,
        number=bundle_number,
        mode="direct" if destination.key else "agent",
        endpoint=destination.endpoint,
        assistants=[assistant.name for assistant in assistants],
        files=[installed.get(path) or _bundle_file(path, files[path]) for path in sorted(files)],
    )
    signed = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    return {**files, MANIFEST: signed, SIGNATURE: signing_key.sign(signed)}


def _bundle_file(path: str, content: bytes, **facts: Any) -> BundleFile:
    return BundleFile(path=path, sha256=sha256(content).hexdigest(), **facts)


def _build_environment_file(machine: Mapping[str, str]) -> bytes:
    return "".join(f'{name}="{value}"\n' for name, value in machine.items()).encode()


def _build_launch_agent(machine: Mapping[str, str]) -> bytes:
    commands = [shlex.join(("/bin/launchctl", "setenv", name, value)) for name, value in machine.items()]
    return plistlib.dumps(
        {
            "Label": "com.tollhouse.environment",
            "ProgramArguments": ["/bin/sh", "-c", " && ".join(commands)],
            "RunAtLoad": True,
        }
    )


def build_configuration_profile(assistants: Iterable[ManagedAssistant], destination: Destination) -> bytes:
    """Return one configuration profile, with one payload per preference domain."""
    payloads = [
        {
            **_profile_payload_header(f"{IDENTIFIER}.{assistant.name}", assistant.domain, assistant.title),
            **assistant.preferences(assistant.settings_text(destination)),
        }
        for assistant in assistants
        if assistant.domain
    ]
    return plistlib.dumps(
        {
            **_profile_payload_header(
                IDENTIFIER, "Configuration", "Tollhouse: telemetry of coding assistants"
            ),
            "PayloadDescription": "Coding assistants report their usage. Prompts are not reported.",
            "PayloadScope": "System",
            "PayloadContent": payloads,
        }
    )


def _profile_payload_header(identifier: str, type: str, title: str) -> dict[str, Any]:
    # An MDM replaces the installed build_profile if the identifiers are equal, so the identifiers never depend on
    # the values.
    return {
        "PayloadType": type,
        "PayloadIdentifier": identifier,
        "PayloadUUID": str(uuid.uuid5(uuid.NAMESPACE_DNS, identifier)).upper(),
        "PayloadVersion": 1,
        "PayloadDisplayName": title,
    }


def _registry_values(
    assistants: Iterable[ManagedAssistant], destination: Destination
) -> Iterator[windows.RegistryValue]:
    for assistant in assistants:
        for name, text in assistant.registry_values(assistant.settings_text(destination)).items():
            yield windows.RegistryValue(assistant.title, assistant.registry, name, text)


def _windows_settings_files(
    assistants: Iterable[ManagedAssistant], destination: Destination
) -> Iterator[tuple[str, str]]:
    for assistant in assistants:
        if not assistant.registry and WINDOWS in assistant.files:
            yield assistant.files[WINDOWS], assistant.settings_text(destination)
