"""
Environments of the clients, created once under `.venv-clients-NAME` and reused.

An environment is created again when its lock changes. If the package index is unreachable, the test is
skipped with a message. If the index responds but a lock cannot be installed, the test fails.

Python locks come from the `.in` file next to them: `uv pip compile --universal --generate-hashes
--no-header --no-emit-index-url --python-version 3.11 NAME.in -o NAME.lock`. Node locks, in `node/NAME`,
come from `npm install --package-lock-only`. Maven locks, in `maven/NAME`, are `sha256sum *.jar` in the
folder of the jars (for Keycloak, of its archive). Go locks, in `go/NAME`, are the go.mod and go.sum after
`go list -mod=mod -deps PACKAGE`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
_STAMP = "lock.sha256"
# pip and npm print these messages if an index is unreachable, as opposed to an unsuitable response.
_NO_INDEX = (
    "connection broken by",
    "No matching distribution",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "Unknown host",
    "no such host",
)


def python(name: str, *, of: Path = Path(sys.executable)) -> Path:
    """
    Return the interpreter of a client's environment. Create the environment with interpreter `of` if necessary.
    """
    place = ROOT / f".venv-clients-{name}"
    lock = HERE / "requirements" / f"{name}.lock"
    interpreter = place / "bin" / "python"
    if not _is_current(place, lock):
        shutil.rmtree(place, ignore_errors=True)
        _make([str(of), "-m", "venv", str(place)])
        quietly = ["install", "--quiet", "--disable-pip-version-check"]
        _make([str(interpreter), "-m", "pip", *quietly, "--require-hashes", "-r", str(lock)])
        _stamp(place, lock)
    return interpreter


def node(name: str) -> Path:
    """Return the directory of a Node client with its packages installed."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    place = ROOT / f".venv-clients-{name}"
    source = HERE / "node" / name
    lock = source / "package-lock.json"
    if not _is_current(place, lock):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("node_modules"))
        # `npm ci` would refuse a lock without the packages of other platforms, and not every registry has
        # all of them.
        _make([npm, "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"], place)
        _stamp(place, lock)
    for program in source.glob("*.mjs"):
        shutil.copy(program, place)
    return place


def java(name: str, *, sources_of: str = "") -> list[str]:
    """
    Return the command that runs a Java program, without its class. It compiles our sources, with the jars
    of the lock. Two versions of a client can share the sources of one.
    """
    maven = shutil.which("mvn")
    if maven is None or shutil.which("javac") is None:
        pytest.skip("mvn and javac are not installed")
    place = ROOT / f".venv-clients-{name}"
    source = HERE / "maven" / name
    lock = source / "jars.sha256"
    if not _is_current(place, lock):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        _make([maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"], place)
        _assert_locked(place / "jars", lock)
        _stamp(place, lock)
    classes = place / "classes"
    if programs := [str(program) for program in (HERE / "maven" / (sources_of or name)).glob("*.java")]:
        _make(["javac", "-parameters", "-cp", f"{place}/jars/*", "-d", str(classes), *programs], place)
    return ["java", "-cp", f"{place}/jars/*:{classes}"]


def quarkus(name: str) -> list[str]:
    """Return the command that runs a Quarkus program. Maven builds it, with the jars of the lock."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("javac") is None:
        pytest.skip("mvn and javac are not installed")
    place = ROOT / f".venv-clients-{name}"
    source = HERE / "maven" / name
    lock = source / "jars.sha256"
    jars = place / "target/quarkus-app/lib/main"
    if not _is_current(place, lock):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        _make([maven, "-q", "-B", "package"], place)
        _assert_locked(jars, lock)
        _stamp(place, lock)
    shutil.copytree(source / "src", place / "src", dirs_exist_ok=True)
    _make([maven, "-q", "-B", "-o", "package"], place)
    return ["java", "-jar", str(place / "target/quarkus-app/quarkus-run.jar")]


def _assert_locked(jars: Path, lock: Path) -> None:
    digests = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars.glob("*.jar")}
    locked = {jar: digest for digest, jar in (line.split() for line in lock.read_text().splitlines())}
    assert locked == digests


def keycloak() -> Path:
    """Return the folder of Keycloak, unpacked from the archive that its lock names."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        pytest.skip("mvn and java are not installed")
    place = ROOT / ".venv-clients-keycloak"
    source = HERE / "maven" / "keycloak"
    lock = source / "archive.sha256"
    digest, name = lock.read_text().split()
    if not _is_current(place, lock):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        words = ["-DoutputDirectory=archives", "-DincludeTypes=zip", "-DexcludeTransitive=true"]
        _make([maven, "-q", "-B", "dependency:copy-dependencies", *words], place)
        archive = place / "archives" / name
        assert digest == hashlib.sha256(archive.read_bytes()).hexdigest()
        shutil.unpack_archive(archive, place)
        archive.unlink()
        for program in place.glob("*/bin/*.sh"):  # unpack_archive does not restore file permissions
            program.chmod(0o755)
        _stamp(place, lock)
    [program] = place.glob("*/bin/kc.sh")
    return program.parents[1]


def of_java(**more: str) -> dict[str, str]:
    """Return the environment of a Java program with these variables."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    return {**kept, **more}


def go(name: str, package: str) -> Path:
    """Build a package with the versions of its lock; return the program."""
    found = shutil.which("go")
    if found is None:
        pytest.skip("go is not installed")
    place = ROOT / f".venv-clients-{name}"
    source = HERE / "go" / name
    lock = source / "go.sum"
    program = place / "bin" / name
    if not _is_current(place, lock):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        _make([found, "build", "-mod=readonly", "-buildvcs=false", "-o", str(program), package], place)
        _stamp(place, lock)
    return program


def _make(command: Sequence[str], directory: Path = ROOT) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=850, env=dict(os.environ)
    )
    if done.returncode == 0:
        return
    said = (done.stderr + done.stdout).splitlines()
    for line in said:
        if any(sign in line for sign in _NO_INDEX):
            pytest.skip(f"the package index cannot be reached: {line.strip()[:200]}")
    raise AssertionError("\n".join([f"{command} ended with {done.returncode}", *said[-60:]]))


def _is_current(place: Path, lock: Path) -> bool:
    stamp = place / _STAMP
    return stamp.exists() and stamp.read_text() == _digest(lock)


def _stamp(place: Path, lock: Path) -> None:
    (place / _STAMP).write_text(_digest(lock))


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()
