"""
The data of a release, which later builds must open: `python -m tests.releases.make [DIRECTORY]`.

The default directory is `tests/releases/VERSION`. It has the public names, settings as files, requests, a data
directory after a kill, a backup, an archive, records as a destination has them, and a manifest with the sum of each
file, the accounting and the costs. A release commits the directory, and nobody changes it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spool.sqlite import reserve
from tests.acceptance.conftest import ARCHIVE, COMMAND, Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE
from tests.integration.operations.files.objects import SECRETS, files_of
from tests.processes.copied import ROOT
from tests.releases import public

CONFIGURATION, MANIFEST = "configuration.toml", "manifest.json"
MAX_BYTES = 5 << 20
PERSON = "ada@example.com"  # the settings as files name this account
REQUESTS = {
    "traces.json": ("/v1/traces", "otlp/otel_genai/chat_simple.json"),
    "litellm.json": ("/v1/ai-telemetry", "gateway/litellm/slp-batch-array.json"),
    "metrics.json": ("/v1/metrics", "otlp/claude_code/metrics_delta.json"),
}


class UnequalSum(Exception):
    """A file of the release is not as it was made."""


def version() -> str:
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def sums_of(directory: Path) -> Mapping[str, str]:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != MANIFEST]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def manifest_of(directory: Path) -> Any:
    """Return the manifest. Raises UnequalSum for a file that was changed, added or removed."""
    manifest = json.loads((directory / MANIFEST).read_text())
    before, now = manifest["sums"], sums_of(directory)
    if changed := [name for name in {*before, *now} if before.get(name) != now.get(name)]:
        raise UnequalSum(f"{directory.name} is not as it was released: {', '.join(sorted(changed))}")
    return manifest


def totals(one: Tollhouse) -> Mapping[str, Any]:
    """Return accounting that balances, and costs by model."""
    verified = one.json("spool", "verify")
    assert verified["balanced"], verified
    accepted = {name: topic["accepted"] for name, topic in verified["topics"].items()}
    rows = one.json("report", "--from", "2020-01-01", "--by", "source,model")["rows"]
    return {"accepted": accepted, "rows": rows}


def send(one: Tollhouse, requests: Path, key: str) -> None:
    for name, (address, _) in REQUESTS.items():
        headers = {"Authorization": key, "Content-Type": "application/json"}
        body = (requests / name).read_bytes()
        answer = KEEP_ALIVE.request("POST", one.url + address, body=body, headers=headers)
        assert answer.status in (200, 202), (name, answer.status, answer.data)


def settings_in(directory: Path) -> Path:
    """Write every kind of settings with every field, and their secrets."""
    for name, text in (files_of() | SECRETS).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
    return directory


def make(directory: Path, work: Path) -> None:
    """Make the data of this build."""
    directory.mkdir(parents=True)
    (directory / "public.txt").write_text("".join(f"{name}\n" for name in sorted(public.names())))
    requests = directory / "requests"
    requests.mkdir()
    for name, (_, case) in REQUESTS.items():
        shutil.copy(ROOT / "tests/cases" / case, requests / name)
    one = Tollhouse(work / "one", ARCHIVE.format(server="", hold="0s", more=""))
    shutil.copy(one.config, directory / CONFIGURATION)
    account = [str(COMMAND), "operators", "create", PERSON, "--role", "Member", "--config", str(one.config)]
    subprocess.run(account, input="a long password\n" * 2, text=True, check=True, capture_output=True)
    settings = settings_in(directory / "settings")
    key = one.key("load")
    one.start()
    one.run("apply", str(settings), "--secrets", str(settings))
    send(one, requests, key)
    one.wait_until_drained()
    one.run("backup", str(directory / "backup"))
    one.kill()
    kept_apart = shutil.ignore_patterns("*.sock", reserve.FILE, reserve.START_FILE)
    shutil.copytree(one.data, directory / "data", ignore=kept_apart)
    shutil.copy(one.archive, directory)
    manifest = {"version": version(), **totals(one)}
    one.run("storage", "export", str(directory / "archive"))
    (directory / MANIFEST).write_text(json.dumps({**manifest, "sums": sums_of(directory)}, indent=1) + "\n")
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    assert size <= MAX_BYTES, size


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        make(Path(*sys.argv[1:]) if sys.argv[1:] else ROOT / "tests/releases" / version(), Path(place))
