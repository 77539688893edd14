"""
Builds what a release ships, twice from two copies of the last commit, and keeps it only if both are the same bytes.

    make release            dist/ gets the wheel, the sdist, SHA256SUMS and IMAGES, and where cargo is the wheel of
                            the compiled module and its requirements-native.lock; the version must stand in
                            CHANGELOG.md, and every image of others under deploy/ is named by its digest
    make release SNAPSHOT=1 the same to try it out, whatever CHANGELOG.md says and however images are named
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import native_wheels
from images import images, without_digest

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheel and the sdist reproducibly.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the directory that gets them")
    parser.add_argument("--snapshot", action="store_true", help="the version need not stand in CHANGELOG.md")
    parser.add_argument("--no-native", action="store_true", help="leave the compiled module out")
    options = parser.parse_args()
    missing = "the compiled module was not asked for" if options.no_native else native_wheels.reason()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if not options.snapshot and not is_described(version, (ROOT / "CHANGELOG.md").read_text()):
        sys.exit(
            f'CHANGELOG.md has no "## [{version}] - DATE": name what is under [Unreleased] so, and commit'
        )
    if (unpinned := without_digest()) and not options.snapshot:
        sys.exit(
            f"these images have no digest: {', '.join(unpinned)}; append @sha256:... where deploy/ names them, as "
            "`docker buildx imagetools inspect IMAGE` tells it, and commit"
        )
    if git("status", "--porcelain", "--untracked-files=no"):
        sys.exit("there are changes that are not committed: a release is built from the last commit")
    with tempfile.TemporaryDirectory() as place:
        first, second = (build(Path(place) / name, with_native=not missing) for name in ("one", "another"))
        found, again = digests(first), digests(second)
        if found != again:
            sys.exit(f"not reproducible: {found} and {again}")
        options.out.mkdir(parents=True, exist_ok=True)
        for file in first.iterdir():
            shutil.copy(file, options.out)
    sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items()))
    (options.out / "SHA256SUMS").write_text(sums)
    (options.out / "IMAGES").write_text("".join(f"{image}\n" for image in images()))
    print(sums, end="")
    for platform in native_wheels.without_wheel(found):
        words = missing or "this machine builds for its own platform alone"
        print(f"no wheel of the compiled module for {platform}: {words}", file=sys.stderr)


def is_described(version: str, changelog: str) -> bool:
    return (
        re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE) is not None
    )


def build(place: Path, *, with_native: bool) -> Path:
    """The directory of what is built from the last commit, in a copy of its own."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
        archive.extractall(place, filter="data")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").decode().strip()}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist"]
    subprocess.run(command, cwd=place, env=environment, check=True, capture_output=True)
    dist = place / "dist"
    if with_native:
        native_wheels.build(place, dist, environment)
        (dist / native_wheels.LOCK).write_text(native_wheels.lock(digests(dist)))
    return dist


def digests(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()}


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
