"""
Builds the files of a release twice, from two copies of the last commit, and keeps them only if their
bytes are equal.

    make release            writes to dist/ the wheel, the sdist, the bill of materials (CycloneDX), SHA256SUMS and
                            IMAGES. With cargo, also the wheel of the compiled module and requirements-native.lock.
                            CHANGELOG.md and tests/releases must contain the version, every third-party image
                            under deploy/ must have a digest, and `make proofs` must have passed with this code.
    make release SNAPSHOT=1 builds the same as a test, with changes that are not committed and without these checks
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

import crates
import native_wheels
from images import images, without_digest

ROOT = Path(__file__).parents[1]
BILL_OF_MATERIALS = "tollhouse.cdx.json"
IMAGES = "IMAGES"
PRODUCT = ("gateway", "exporters", "spool", "native")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheel and the sdist reproducibly.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="output directory")
    parser.add_argument("--snapshot", action="store_true", help="allow a version that is not in CHANGELOG.md")
    parser.add_argument("--no-native", action="store_true", help="do not build the compiled module")
    parser.add_argument("--cyclonedx", type=Path, help="command that writes the bill of materials")
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
    if not options.snapshot and not (ROOT / "tests/releases" / version).is_dir():
        sys.exit(
            "later builds need data of this one: run `python -m tests.releases.make`, and commit tests/releases"
        )
    if not options.snapshot and (reason := unproved((ROOT / "tests/EVIDENCE.md").read_text())):
        sys.exit(f"{reason}; run `make proofs`, and commit tests/EVIDENCE.md")
    changes = git("stash", "create").decode().strip()  # a commit of the changes, which stay as they are
    if changes and not options.snapshot:
        sys.exit("there are uncommitted changes; a release is built from the last commit")
    with tempfile.TemporaryDirectory() as place:
        one, another = (Path(place) / name for name in ("one", "another"))
        first, second = (build(each, changes or "HEAD", with_native=not missing) for each in (one, another))
        found, again = digests(first), digests(second)
        if found != again:
            sys.exit(f"not reproducible: {found} and {again}")
        options.out.mkdir(parents=True, exist_ok=True)
        for file in first.iterdir():
            shutil.copy(file, options.out)
        if options.cyclonedx:
            write_bill(one, options.out / BILL_OF_MATERIALS, options.cyclonedx)
            found[BILL_OF_MATERIALS] = digest_of(options.out / BILL_OF_MATERIALS)
    (options.out / IMAGES).write_text("".join(f"{image}\n" for image in images()))
    found[IMAGES] = digest_of(options.out / IMAGES)
    sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items()))
    (options.out / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    for platform in native_wheels.without_wheel(found):
        words = missing or "this machine builds only for its own platform"
        print(f"no wheel of the compiled module for {platform}: {words}", file=sys.stderr)


def unproved(evidence: str) -> str:
    """Return why `make proofs` has not proved the product code of this checkout, or an empty text."""
    passed = re.search(r"^`make proofs` passed on .* at commit `([0-9a-f]{40})`", evidence, re.MULTILINE)
    if passed is None:
        return "`make proofs` has not passed as a whole"
    changed = git("diff", "--name-only", passed[1], "HEAD", "--", *PRODUCT).decode().split()
    return f"`make proofs` has not run since {', '.join(changed[:5])} changed" if changed else ""


def is_described(version: str, changelog: str) -> bool:
    return (
        re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE) is not None
    )


def build(place: Path, commit: str, *, with_native: bool) -> Path:
    """Build a commit in a separate copy, and return the directory with the results."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as archive:
        archive.extractall(place, filter="data")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").decode().strip()}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist"]
    subprocess.run(command, cwd=place, env=environment, check=True, capture_output=True)
    dist = place / "dist"
    if with_native:
        native_wheels.build(place, dist, environment)
        (dist / native_wheels.LOCK).write_text(native_wheels.lock(digests(dist)))
    return dist


def write_bill(checkout: Path, path: Path, cyclonedx: Path) -> None:
    """Write the bill of materials of the locked libraries, and of the crates if cargo can list them."""
    lock = checkout / "deploy/locks/requirements.lock"
    about = ("--pyproject", checkout / "pyproject.toml")
    command: list[str | Path] = [cyclonedx, "requirements", lock, *about, "--output-reproducible", "-o", path]
    subprocess.run(command, check=True, capture_output=True)
    crates.add_to(path)


def digests(directory: Path) -> dict[str, str]:
    return {file.name: digest_of(file) for file in directory.iterdir()}


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
