"""The crates of the compiled module, with their licences, for a bill of materials (CycloneDX JSON)."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).parents[1] / "native"


def add_to(path: Path) -> None:
    """Add the crates to a bill of materials. If cargo cannot list them, report why and leave it unchanged."""
    try:
        crates = components()
    except (OSError, subprocess.CalledProcessError) as error:
        words = f"the crates of the compiled module are not in {path.name}, because cargo cannot list them"
        print(f"{words} ({error})", file=sys.stderr)
        return
    path.write_text(json.dumps(with_components(json.loads(path.read_text()), crates), indent=2) + "\n")


def components() -> list[dict[str, Any]]:
    """
    Return every locked third-party crate. Raises OSError or CalledProcessError if cargo cannot list the licences.
    """
    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--manifest-path",
        str(NATIVE / "Cargo.toml"),
    ]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    licences = {(each["name"], each["version"]): each["license"] for each in packages}
    locked = tomllib.loads((NATIVE / "Cargo.lock").read_text())["package"]
    return [
        component(each, licences[each["name"], each["version"]])
        for each in sorted(locked, key=lambda each: (each["name"], each["version"]))
        if "source" in each and (each["name"], each["version"]) in licences
    ]


def component(crate: dict[str, str], licence: str | None) -> dict[str, Any]:
    """Return a crate as a component of the bill of materials."""
    name = f"pkg:cargo/{crate['name']}@{crate['version']}"
    return {
        "bom-ref": name,
        "hashes": [{"alg": "SHA-256", "content": crate["checksum"]}],
        "licenses": [{"expression": licence.replace("/", " OR ")}] if licence else [],
        "name": crate["name"],
        "purl": name,
        "type": "library",
        "version": crate["version"],
    }


def with_components(bill: dict[str, Any], crates: list[dict[str, Any]]) -> dict[str, Any]:
    ours = {each["bom-ref"] for each in crates}
    others = [each for each in bill.get("components", []) if each["bom-ref"] not in ours]
    linked = [each for each in bill.get("dependencies", []) if each["ref"] not in ours]
    links = [{"ref": name} for name in sorted(ours)]
    return {**bill, "components": [*others, *crates], "dependencies": [*linked, *links]}
