"""
An upgrade from an earlier build: `make test-upgrade FROM=REF`.

The earlier build gets calls and is killed under load. This build replaces it in the same environment, and starts on
its data. Then the totals are equal, and calls that are sent again count once.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tests.acceptance.conftest import ARCHIVE, SEND_AI_TELEMETRY, Tollhouse
from tests.acceptance.lifecycle.load import SPANS, load
from tests.processes.copied import ROOT
from tests.releases.installing import Installers, install_installers, run
from tests.waiting import wait_until

CONNECTIONS = 2
REQUESTS = 40
LOCK = ROOT / "deploy/locks/requirements.lock"


class Refused(Exception):
    """This build refused the data of the earlier build."""


class Installation(Tollhouse):
    """An installation whose command is in an environment of its own, outside the checkout."""

    def __init__(self, directory: Path, installers: Installers) -> None:
        super().__init__(directory, ARCHIVE.format(server="", hold="0s", more=""))
        self._installers = installers
        self.bin = installers.environment(Path(sys.executable), directory)
        self.pip("install", "--require-hashes", "-r", LOCK)

    def pip(self, verb: str, *words: str | Path) -> None:
        python = ("--python", self.bin / "python")
        self._installers.uv("pip", verb, "--quiet", *python, *words, directory=self.directory)

    def install(self, wheel: Path) -> None:
        self.pip("install", "--no-deps", "--no-index", "--reinstall-package", "tollhouse", wheel)

    def json(self, *words: str, code: int = 0) -> Any:
        """Run a command of the installed build while no server runs, or one of this checkout against a server."""
        if self.process:
            return super().json(*words, code=code)
        chosen = ("--config", str(self.config), "--json")
        return json.loads(run(self.bin / "tollhouse", *words, *chosen, directory=self.directory))

    def serve(self) -> str:
        return self.start({"PYTHONPATH": ""}, [str(self.bin / "tollhouse")], is_new=True)

    def totals(self) -> Mapping[str, Any]:
        """Return accounting that balances, and costs."""
        verified = self.json("spool", "verify")
        assert verified["balanced"], verified
        rows = self.json("report", "--from", "2020-01-01")["rows"]
        return {"topics": verified["topics"], "rows": rows}

    def digests(self) -> Mapping[str, str]:
        files = (path for path in self.data.rglob("*") if path.is_file())
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def upgrade(one: Installation, earlier: Path, wheel: Path) -> int:
    """
    Fill and kill the earlier build, upgrade, and compare. Return the number of calls.

    Raises Refused if this build has no migration for the data. Then it has changed nothing.
    """
    one.install(earlier)
    key = one.json("keys", "create", "--name", "load", "--use-case", SEND_AI_TELEMETRY)["secret"]
    with load(one.serve(), key, connections=CONNECTIONS) as before:
        wait_until(lambda: before.acknowledged >= REQUESTS, "some load")
        one.kill()
    killed = one.directory / "killed"
    shutil.copytree(one.data, killed, ignore=shutil.ignore_patterns("*.sock"))
    totals = one.totals()
    shutil.rmtree(one.data)
    killed.rename(one.data)  # this build repairs what the kill left in the copied directory
    kept = totals["topics"]["ai-telemetry"]["accepted"]
    assert before.records <= kept <= before.records + CONNECTIONS * SPANS
    one.install(wheel)
    digests = one.digests()
    try:
        url = one.serve()
    except AssertionError as failure:
        assert one.process and 2 == one.process.wait(), failure
        one.stop(code=2)
        assert digests == one.digests()
        raise Refused(one.log[-1]) from failure
    assert totals == one.totals()
    with load(url, key, connections=1) as again:
        wait_until(lambda: again.records >= kept + SPANS, "all calls again")
    assert {} == dict(again.failed)
    assert again.records == one.asked("/books")["topics"]["ai-telemetry"]["accepted"]
    one.stop()
    return again.records


def remove(one: Installation) -> None:
    """Remove the build. Its packages and its command are deleted, and the data stay."""
    before = one.digests()
    one.pip("uninstall", "tollhouse")
    assert not (one.bin / "tollhouse").exists()
    (libraries,) = one.bin.parent.glob("lib/python*/site-packages")
    assert set() == {"gateway", "exporters", "spool"} & {path.name for path in libraries.iterdir()}
    assert before == one.digests()


def wheel_of(reference: str, directory: Path) -> Path:
    """Build the wheel of a commit in a copy."""
    archive = subprocess.run(["git", "archive", reference], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as commit:
        commit.extractall(directory, filter="data")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", directory=directory)
    (built,) = (directory / "dist").glob("tollhouse-*.whl")
    return built


@click.command()
@click.argument("reference", metavar="REF")
def main(reference: str) -> None:
    """
    Upgrade an installation from the build of a commit to the wheel in dist/ (`make release`).

    If REF is a tag of a release, this build must open its data. Another commit may have other tables. Then this
    build must refuse the data.
    """
    wheels = list((ROOT / "dist").glob("tollhouse-*-none-any.whl"))
    if len(wheels) != 1:
        raise click.UsageError(
            "dist/ must contain the wheel of one version; `make release SNAPSHOT=1` builds it"
        )
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        one = Installation(directory / "one", install_installers(directory / "installers"))
        earlier = wheel_of(reference, directory / "earlier")
        try:
            calls = upgrade(one, earlier, wheels[0])
        except Refused as refused:
            if reference.startswith("v"):
                raise
            click.echo(f"{reference}: its data are refused, and no byte changed: {refused}")
        else:
            click.echo(f"{reference}: {calls} calls before the upgrade and after it, each counted once")
        finally:
            one.stop(code=None)
        remove(one)


if __name__ == "__main__":
    main()
