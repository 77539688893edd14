"""The Windows files of a policy bundle: administrative template, registry file and PowerShell script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

ENVIRONMENT_KEY: Final = r"SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
LONGEST_TEXT: Final = 1000  # maximum characters of a text, because administrative templates limit it to 1,023
_SCHEMA: Final = "http://schemas.microsoft.com/GroupPolicy/2006/07/PolicyDefinitions"


@dataclass(frozen=True, slots=True)
class RegistryValue:
    """A text (REG_SZ) under a key below HKEY_LOCAL_MACHINE. `title` is the assistant that reads it."""

    title: str
    key: str
    name: str
    text: str


def windows_policy_files(
    values: Sequence[RegistryValue], documents: Sequence[tuple[str, str]], machine: Mapping[str, str]
) -> dict[str, bytes]:
    """
    Return the files by their paths. `documents` are files of the machine, and `machine` its environment variables.
    Raises ValueError if a text is too long for an administrative template.
    """
    for value in values:
        if len(value.text) > LONGEST_TEXT:
            raise ValueError(
                f"the settings of {value.title} have {len(value.text)} characters, and a Windows template allows "
                f"{LONGEST_TEXT}; use a shorter address or key"
            )
    variables = [RegistryValue("Environment", ENVIRONMENT_KEY, *pair) for pair in machine.items()]
    script = _build_script([*values, *variables], documents)
    return {
        "windows/policy.admx": _build_template(values),
        "windows/en-US/policy.adml": _build_template_language_file(values),
        "windows/policy.reg": registry_file([*values, *variables]),
        "windows/Set-TollhousePolicy.ps1": script,
        # Intune runs the detection script of a remediation without arguments
        "windows/Detect-TollhousePolicy.ps1": script.replace(
            b"[switch]$Detect,", b"[switch]$Detect = $true,"
        ),
    }


def registry_file(values: Iterable[RegistryValue]) -> bytes:
    lines = ["Windows Registry Editor Version 5.00"]
    for value in values:
        lines += [
            "",
            rf"[HKEY_LOCAL_MACHINE\{value.key}]",
            f"{_quote_variable(value.name)}={_quote_variable(value.text)}",
        ]
    text = "\r\n".join(lines) + "\r\n"
    return ("\ufeff" + text).encode("utf-16-le")


def _quote_variable(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _policy_identifier(value: RegistryValue) -> str:
    return re.sub(r"\W", "", f"{value.title}_{value.name}")


def _build_template(values: Iterable[RegistryValue]) -> bytes:
    """
    Build a Group Policy template with one policy per registry value. Each policy has a fixed text, so an
    administrator only enables it.
    """
    root = _new_document("policyDefinitions")
    namespaces = ET.SubElement(root, "policyNamespaces")
    ET.SubElement(namespaces, "target", prefix="tollhouse", namespace="Tollhouse.Policies.Assistants")
    ET.SubElement(root, "resources", minRequiredRevision="1.0")
    categories = ET.SubElement(root, "categories")
    ET.SubElement(categories, "category", name="Tollhouse", displayName="$(string.Tollhouse)")
    policies = ET.SubElement(root, "policies")
    for value in values:
        policy = ET.SubElement(
            policies,
            "policy",
            {
                "name": _policy_identifier(value),
                "class": "Machine",
                "displayName": f"$(string.{_policy_identifier(value)})",
                "explainText": f"$(string.{_policy_identifier(value)}_Help)",
                "key": value.key,
                "valueName": value.name,
            },
        )
        ET.SubElement(policy, "parentCategory", ref="Tollhouse")
        ET.SubElement(ET.SubElement(policy, "enabledValue"), "string").text = value.text
        ET.SubElement(ET.SubElement(policy, "disabledValue"), "delete")
    return _serialize_xml(root)


def _build_template_language_file(values: Iterable[RegistryValue]) -> bytes:
    root = _new_document("policyDefinitionResources")
    ET.SubElement(root, "displayName").text = "Tollhouse"
    ET.SubElement(root, "description").text = "Telemetry of coding assistants"
    strings = ET.SubElement(ET.SubElement(root, "resources"), "stringTable")
    for id, text in _strings_of_template(values):
        ET.SubElement(strings, "string", id=id).text = text
    return _serialize_xml(root)


def _strings_of_template(values: Iterable[RegistryValue]) -> Iterator[tuple[str, str]]:
    yield "Tollhouse", "Tollhouse: telemetry of coding assistants"
    for value in values:
        yield _policy_identifier(value), f"{value.title} reports its usage"
        help = f"If enabled, {value.title} reports its usage. Prompts are not reported. The value replaces {value.name}"
        yield (
            f"{_policy_identifier(value)}_Help",
            rf"{help} under HKLM\{value.key}. It has at most {LONGEST_TEXT} characters.",
        )


def _new_document(name: str) -> ET.Element:
    return ET.Element(name, {"xmlns": _SCHEMA, "revision": "1.0", "schemaVersion": "1.0"})


def _serialize_xml(root: ET.Element) -> bytes:
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _build_script(values: Iterable[RegistryValue], documents: Iterable[tuple[str, str]]) -> bytes:
    items = [("HKLM:\\" + value.key, value.name, value.text) for value in values]
    items += [(path, "", text) for path, text in documents]
    lines = (
        "    @{{ Path = {}; Name = {}; Text = {} }}".format(*map(_quote_for_powershell, item))
        for item in items
    )
    text = _SCRIPT.replace("ITEMS", "\n".join(lines))
    # Windows PowerShell 5.1 reads the file as UTF-8 only if it begins with the byte order mark
    return text.replace("\n", "\r\n").encode("utf-8-sig")


def _quote_for_powershell(text: str) -> str:
    """
    Quote a text for PowerShell. Line breaks become spaces, because JSON allows both, and the line breaks of
    the script are changed later.
    """
    return "'" + re.sub(r"\n\s*", " ", text.strip()).replace("'", "''") + "'"


_SCRIPT: Final = r"""#Requires -Version 5.1
<#
.SYNOPSIS
Writes the managed settings with which coding assistants report to Tollhouse. Run it as SYSTEM or Administrator.
.DESCRIPTION
-Detect changes nothing. It exits with 0 if all settings are in place, and with 1 otherwise.
-Remove deletes the settings that this script wrote and nobody has changed since.
Settings that this script did not write are never replaced. The exit code is then 3.
#>
[CmdletBinding()]
param([switch]$Detect, [switch]$Remove)
$ErrorActionPreference = 'Stop'
# a 32-bit process would write to another part of the registry, which the assistants do not read
if ([Environment]::Is64BitOperatingSystem -and -not [Environment]::Is64BitProcess) {
    throw 'Run this script in 64-bit PowerShell.'
}
$Record = 'HKLM:\SOFTWARE\Tollhouse\Policy'
$Items = @(
ITEMS
)

function Get-Value([string]$Path, [string]$Name) {
    if (-not (Test-Path -LiteralPath $Path)) { return $null }
    return (Get-Item -LiteralPath $Path).GetValue($Name, $null, 'DoNotExpandEnvironmentNames')
}

function Set-Value([string]$Path, [string]$Name, [string]$Text) {
    if (-not (Test-Path -LiteralPath $Path)) { New-Item -Path $Path -Force | Out-Null }
    New-ItemProperty -LiteralPath $Path -Name $Name -Value $Text -PropertyType String -Force | Out-Null
}

function Get-Text($Item) {
    if ($Item.Name) { return Get-Value $Item.Path $Item.Name }
    foreach ($Path in @((Split-Path -LiteralPath $Item.Path), $Item.Path)) {
        if (-not (Test-Path -LiteralPath $Path)) { return $null }
        if ((Get-Item -LiteralPath $Path -Force).Attributes -band [IO.FileAttributes]::ReparsePoint) {
            throw "$Path is a link, so it is not used"
        }
    }
    return [IO.File]::ReadAllText($Item.Path)
}

function Set-Text($Item) {
    if ($Item.Name) {
        Set-Value $Item.Path $Item.Name $Item.Text
        return
    }
    New-Item -ItemType Directory -Path (Split-Path -LiteralPath $Item.Path) -Force | Out-Null
    $Draft = $Item.Path + '.tollhouse-new'
    [IO.File]::WriteAllText($Draft, $Item.Text)
    Move-Item -LiteralPath $Draft -Destination $Item.Path -Force
}

function Remove-Text($Item) {
    if ($Item.Name) { Remove-ItemProperty -LiteralPath $Item.Path -Name $Item.Name }
    else { Remove-Item -LiteralPath $Item.Path }
}

function Get-Digest([string]$Text) {
    $Algorithm = [Security.Cryptography.SHA256]::Create()
    return [BitConverter]::ToString($Algorithm.ComputeHash([Text.Encoding]::UTF8.GetBytes($Text)))
}

$Missing = 0
$Foreign = 0
foreach ($Item in $Items) {
    $Id = ($Item.Path + '|' + $Item.Name).Replace('\', '/')
    $Now = Get-Text $Item
    if ($Detect) {
        if ($Now -cne $Item.Text) { Write-Output "not in place: $Id"; $Missing++ }
        continue
    }
    $Written = Get-Value $Record $Id
    $IsOurs = ($null -ne $Written) -and ($null -ne $Now) -and ((Get-Digest $Now) -ceq $Written)
    if ($Remove) {
        if ($IsOurs) { Remove-Text $Item }
        elseif ($null -ne $Written -and $null -ne $Now) { Write-Output "changed, so it is kept: $Id"; $Foreign++ }
        if ($null -ne $Written) { Remove-ItemProperty -LiteralPath $Record -Name $Id }
        continue
    }
    if ($Now -ceq $Item.Text) { continue }
    if ($null -ne $Now -and -not $IsOurs) {
        Write-Output "exists, so it is not replaced; add the fragment from the folder merge: $Id"
        $Foreign++
        continue
    }
    Set-Text $Item
    Set-Value $Record $Id (Get-Digest $Item.Text)
}
if ($Detect) { exit [int]($Missing -gt 0) }
if ($Foreign) { exit 3 }
exit 0
"""
