"""
Builds the files of a release twice, from two copies of the last commit, and keeps them only if their
bytes are equal.

    make release            writes to dist/ the wheel, the sdist, SHA256SUMS and IMAGES. With cargo, also the wheel of
                            the compiled module and requirements-native.lock. CHANGELOG.md must contain the version,
                            and every third-party image under deploy/ must have a digest.
    make release SNAPSHOT=1 builds the same as a test, without the checks of CHANGELOG.md and images
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
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="output directory")
    parser.add_argument("--snapshot", action="store_true", help="allow a version that is not in CHANGELOG.md")
    parser.add_argument("--no-native", action="store_true", help="do not build the compiled module")
    options = parser.parse_args()
    missing = "the compiled module was not requested" if options.no_native else native_wheels.reason()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if not options.snapshot and not is_described(version, (ROOT / "CHANGELOG.md").read_text()):
        sys.exit(
            f'CHANGELOG.md has no "## [{version}] - DATE": rename the heading [Unreleased] to it, and commit'
        )
    if (unpinned := without_digest()) and not options.snapshot:
        sys.exit(
            f"these images have no digest: {', '.join(unpinned)}; append @sha256:... under deploy/ "
            "(see `docker buildx imagetools inspect IMAGE`), and commit"
        )
    if git("status", "--porcelain", "--untracked-files=no"):
        sys.exit("there are uncommitted changes; a release is built from the last commit")
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
        words = missing or "this machine builds only for its own platform"
        print(f"no wheel of the compiled module for {platform}: {words}", file=sys.stderr)


def is_described(version: str, changelog: str) -> bool:
    return (
        re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE) is not None
    )


def build(place: Path, *, with_native: bool) -> Path:
    """Build the last commit in a separate copy, and return the directory with the results."""
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
