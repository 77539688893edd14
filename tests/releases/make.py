"""
The data of a release, which later builds must open: `python -m tests.releases.make [DIRECTORY]`.

The default directory is `tests/releases/VERSION`. It has the public names, settings as files, requests, a data
directory after a kill, that of an agent, a dump of PostgreSQL, a backup, an archive, a lake, records as a destination
has them, and a manifest with the sum of each file, the accounting and the costs. A release commits the directory, and
nobody changes it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spool.sqlite import reserve
from tests.acceptance.conftest import ARCHIVE, COMMAND, Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE
from tests.acceptance.test_devices import AGENT, Agent
from tests.integration.operations.files.objects import SECRETS, files_of
from tests.processes.copied import ROOT
from tests.releases import public
from tests.spool.postgres_cluster import NOT_DURABLE, Server, folder, programs, run

CONFIGURATION, AGENT_CONFIGURATION, MANIFEST = "configuration.toml", "agent.toml", "manifest.json"
DUMP, SECRET, SCHEMA = "postgres.sql", "postgres.secret", "tollhouse"
NOWHERE = "http://127.0.0.1:9"  # the address of the agent's gateway, which does not exist
LAKE = '[[destinations]]\nname = "lake"\ntype = "file"\npath = "lake"\nformat = "ndjson"\n'
ON_POSTGRES = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
max_bytes = "1GiB"
[storage]
engine = "postgres"
dsn_file = "{place}/dsn"
secret_file = "{place}/secret"
schema = "{schema}"
durability = "local"
"""
MAX_BYTES = 5 << 20
PERSON = "ada@example.com"  # the settings in the release's files name this account
REQUESTS = {
    "traces.json": ("/v1/traces", "otlp/otel_genai/chat_simple.json"),
    "litellm.json": ("/v1/ai-telemetry", "gateway/litellm/slp-batch-array.json"),
    "metrics.json": ("/v1/metrics", "otlp/claude_code/metrics_delta.json"),
}
OF_AGENT = {"agent.json": ("/v1/traces", "otlp/otel_genai/anthropic_cache_reasoning.json")}


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


def accepted(one: Tollhouse) -> Mapping[str, int]:
    """Return the number of records of each topic. The accounting balances."""
    verified = one.json("spool", "verify")
    assert verified["balanced"], verified
    return {name: topic["accepted"] for name, topic in verified["topics"].items()}


def totals(one: Tollhouse) -> Mapping[str, Any]:
    """Return accounting that balances, and costs by model."""
    rows = one.json("report", "--from", "2020-01-01", "--by", "source,model")["rows"]
    return {"accepted": accepted(one), "rows": rows}


def send(one: Tollhouse, requests: Path, key: str, which: Mapping[str, tuple[str, str]] = REQUESTS) -> None:
    for name, (address, _) in which.items():
        headers = {"Authorization": key, "Content-Type": "application/json"}
        body = (requests / name).read_bytes()
        answer = KEEP_ALIVE.request("POST", one.url + address, body=body, headers=headers)
        assert answer.status in (200, 202), (name, answer.status, answer.data)


@contextmanager
def postgres() -> Iterator[Server]:
    """Run a PostgreSQL server with its files in a temporary folder."""
    with folder() as path:
        server = Server(path, NOT_DURABLE)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def on_postgres(directory: Path, server: Server) -> Tollhouse:
    one = Tollhouse(directory, ON_POSTGRES.format(place=directory, schema=SCHEMA))
    (directory / "dsn").write_text(server.dsn)
    return one


def dump(directory: Path, work: Path) -> None:
    """Write the dump of a schema with the data of the archive."""
    with postgres() as server:
        one = on_postgres(work, server)
        one.run("storage", "import", str(directory / "archive"))
        made = server.folder / DUMP
        run("pg_dump", "--no-owner", "-d", server.dsn, "-n", SCHEMA, "-f", str(made))
        shutil.copyfile(made, directory / DUMP)
    shutil.copyfile(work / "secret", directory / SECRET)


def restored_dump(stored: Path, work: Path, server: Server) -> Tollhouse:
    """Return an installation on the dump of a release."""
    one = on_postgres(work, server)
    shutil.copyfile(stored / SECRET, work / "secret")
    (work / "secret").chmod(0o600)
    readable = server.folder / DUMP
    shutil.copyfile(stored / DUMP, readable)
    readable.chmod(0o644)
    run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", server.dsn, "-f", str(readable))
    return one


def settings_in(directory: Path) -> Path:
    """Write every kind of settings with every field, and their secrets."""
    for name, text in (files_of() | SECRETS).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
    return directory


def agent_of(directory: Path, work: Path) -> Agent:
    """Return an agent that has a call, cannot reach its gateway, and was killed."""
    agent = Agent(work / "agent", AGENT.format(url=NOWHERE))
    shutil.copy(agent.config, directory / AGENT_CONFIGURATION)
    (agent.directory / "enrolment.key").write_text("s" * 40)
    agent.start()
    send(agent, directory / "requests", "", OF_AGENT)
    agent.kill()
    return agent


def make(directory: Path, work: Path) -> None:
    """Make the data of this build."""
    directory.mkdir(parents=True)
    (directory / "public.txt").write_text("".join(f"{name}\n" for name in sorted(public.names())))
    requests = directory / "requests"
    requests.mkdir()
    for name, (_, case) in (REQUESTS | OF_AGENT).items():
        shutil.copy(ROOT / "tests/cases" / case, requests / name)
    one = Tollhouse(work / "one", ARCHIVE.format(server="", hold="0s", more=LAKE))
    shutil.copy(one.config, directory / CONFIGURATION)
    account = [str(COMMAND), "operators", "create", PERSON, "--role", "Member", "--config", str(one.config)]
    subprocess.run(account, input="a long password\n" * 2, text=True, check=True, capture_output=True)
    settings = settings_in(directory / "settings")
    key = one.key("load")
    one.start()
    one.run("apply", str(settings), "--secrets", str(settings))
    send(one, requests, key)
    one.wait_until_drained()
    one.run("lake", "land")
    one.run("backup", str(directory / "backup"))
    one.kill()
    kept_apart = shutil.ignore_patterns("*.sock", reserve.FILE, reserve.START_FILE)
    shutil.copytree(one.data, directory / "data", ignore=kept_apart)
    shutil.copytree(one.directory / "lake", directory / "lake")
    shutil.copy(one.archive, directory)
    agent = agent_of(directory, work)
    shutil.copytree(agent.data, directory / "agent", ignore=kept_apart)
    manifest = {"version": version(), **totals(one), "agent": accepted(agent)}
    one.run("storage", "export", str(directory / "archive"))
    if programs() is None:
        print("PostgreSQL is not installed, so there is no dump", file=sys.stderr)
    else:
        dump(directory, work / "postgres")
    (directory / MANIFEST).write_text(json.dumps({**manifest, "sums": sums_of(directory)}, indent=1) + "\n")
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    assert size <= MAX_BYTES, size


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        make(Path(*sys.argv[1:]) if sys.argv[1:] else ROOT / "tests/releases" / version(), Path(place))
