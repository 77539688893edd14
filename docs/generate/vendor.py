"""
Fetches the console's JavaScript libraries and its font from npm into gateway/console/static/vendor: `make vendor`.

Each archive must have the hash in SOURCES.json. Bare module names become relative paths, because an import
map would violate the strict content security policy. A font keeps only the weights and characters that SOURCES.json
names, because the whole one is more than twice as large.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

VENDOR = Path(__file__).parents[2] / "gateway/console/static/vendor"
SOURCES = VENDOR / "SOURCES.json"
_BARE = (b'from"preact"', b'from "preact"')


def main() -> None:
    sources = json.loads(SOURCES.read_text())
    licences = []
    for source in sources["packages"]:
        archive = _fetched(f"{source['name']}@{source['version']}")
        found = sha256(archive).hexdigest()
        if found != source["sha256"]:
            sys.exit(
                f"{source['name']} {source['version']}: the archive's SHA-256 is {found}, but "
                f"SOURCES.json has {source['sha256']}"
            )
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            for path, name in source["files"].items():
                content = _member(members, path)
                part = source.get("part")
                (VENDOR / name).write_bytes(_font_part(content, part) if part else _rewritten(content))
            text = _member(members, source["licence_file"]).decode().strip()
        licences.append(f"{source['name']} {source['version']} ({source['licence']})\n\n{text}\n")
    (VENDOR / "LICENSES.txt").write_text(f"\n{'-' * 80}\n\n".join(licences))


def _fetched(package: str) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        command = ["npm", "pack", "--silent", package]
        packed = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True)
        return (Path(place) / packed.stdout.split()[-1]).read_bytes()


def _member(members: tarfile.TarFile, path: str) -> bytes:
    found = members.extractfile(f"package/{path}")
    if found is None:
        sys.exit(f"{path} is not a file of the archive")
    return found.read()


def _font_part(font: bytes, part: Mapping[str, str]) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        whole, light, small = (f"{place}/{name}.woff2" for name in ("whole", "light", "small"))
        Path(whole).write_bytes(font)
        weights = f"wght={part['weights']}"
        for command in (
            ["varLib.instancer", whole, weights, "--no-recalc-timestamp", "--output", light],
            ["subset", light, f"--unicodes={part['characters']}", f"--layout-features={part['features']}",
             "--flavor=woff2", "--no-recalc-timestamp", f"--output-file={small}"],
        ):  # fmt: skip
            subprocess.run([sys.executable, "-m", "fontTools", *command], check=True)
        return Path(small).read_bytes()


def _rewritten(text: bytes) -> bytes:
    for bare in _BARE:
        text = text.replace(bare, b'from"./preact.mjs"')
    # references to source maps are removed, because the maps are not shipped and browsers would get a 404
    kept = (line for line in text.splitlines() if not line.startswith(b"//# sourceMappingURL="))
    return b"\n".join(kept) + b"\n"


if __name__ == "__main__":
    main()
