"""Peers that this machine can run: a collector built with Go, and packages from the package index."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.acceptance.conftest import ROOT
from tests.bench.load.payloads import IDS
from tests.bench.peers.peer import MakePeer, Peer, ProcessPeer, TollhousePeer, Unavailable
from tests.free_ports import free_port

BUILDER = "go.opentelemetry.io/collector/cmd/builder@v0.155.0"
BUILD = Path(__file__).with_name("collector.yaml")
COLLECTOR = ROOT / "build/peers/collector/otelcol"
MODULE = ROOT / ".venv-native/site"
PIPELINE = """
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  otlp_http:
    endpoint: "{upstream}"
    compression: gzip
    sending_queue: {{storage: file_storage, queue_size: 5000, block_on_overflow: true}}
    retry_on_failure: {{initial_interval: 500ms, max_interval: 2s, max_elapsed_time: 0}}
extensions:
  file_storage: {{directory: "{storage}", fsync: {fsync}}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [otlp_http]}}}}
"""


def build_collector() -> Path:
    """Return the collector's program. The first call builds it."""
    if COLLECTOR.exists():
        return COLLECTOR
    go = shutil.which("go")
    if go is None:
        raise Unavailable("Go is not installed (Debian: apt-get install golang)")
    COLLECTOR.parent.mkdir(parents=True, exist_ok=True)
    _run([go, "run", BUILDER, "--config", str(BUILD)], "it could not be built")
    return COLLECTOR


def _run(words: list[str], failure: str) -> None:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unavailable(f"{failure}: {' '.join(last)}")


def collector(*, fsync: bool) -> MakePeer:
    """Return a maker of collectors with a file queue, flushed or not."""

    def make(directory: Path, upstream: str, cores: set[int]) -> Peer:
        program, port = build_collector(), free_port()
        storage = directory / "storage"
        storage.mkdir(parents=True)
        config = directory / "collector.yaml"
        config.write_text(
            PIPELINE.format(port=port, upstream=upstream, storage=storage, fsync="true" if fsync else "false")
        )
        return ProcessPeer(
            command=(str(program), "--config", str(config)), port=port, directory=directory, cores=cores
        )

    return make


def package(name: str, requirement: str, program: str) -> Path:
    """Return a program of a package from the index. The first call creates its environment."""
    environment = ROOT / f".venv-{name}"
    found = environment / "bin" / program
    if not found.exists():
        _run([sys.executable, "-m", "venv", str(environment)], "no environment could be made")
        _run(
            [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", requirement],
            "not to be installed",
        )
    return found


def phoenix(directory: Path, upstream: str, cores: set[int]) -> Peer:
    """Start Arize Phoenix with its own SQLite database."""
    program, port = package("phoenix", "arize-phoenix", "phoenix"), free_port()
    directory.mkdir(parents=True)
    environment = {
        "PHOENIX_WORKING_DIR": str(directory),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    return ProcessPeer(
        command=(str(program), "serve"),
        port=port,
        directory=directory,
        cores=cores,
        environment=environment,
        health="/healthz",
        stored=lambda: ids_in(directory / "phoenix.db", "spans", "attributes"),
    )


def mlflow(directory: Path, upstream: str, cores: set[int]) -> Peer:
    """Start an MLflow tracking server with one worker and a SQLite database."""
    program, port = package("mlflow", "mlflow", "mlflow"), free_port()
    directory.mkdir(parents=True)
    database = directory / "mlflow.db"
    words = (
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        f"sqlite:///{database}",
    )
    return ProcessPeer(
        command=(str(program), "server", *words),
        port=port,
        directory=directory,
        cores=cores,
        headers={"x-mlflow-experiment-id": "0"},
        health="/health",
        stored=lambda: ids_in(database, "spans", "content"),
    )


def ids_in(database: Path, table: str, column: str) -> Counter[str]:
    """Count the committed rows per record id in a column."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        rows = connection.execute(f"SELECT {column} FROM {table}").fetchall()
    connection.close()
    return Counter(found.decode() for (text,) in rows for found in set(IDS.findall(str(text).encode())))


def with_module(directory: Path, upstream: str, cores: set[int]) -> Peer:
    """Start Tollhouse with the compiled module, built from the sources as they are: an older module is not used."""
    _run(["make", str((MODULE / "stamp").relative_to(ROOT))], "the compiled module could not be built")
    return TollhousePeer(directory, upstream, cores, path=MODULE)


def other_checkout(path: Path) -> MakePeer:
    """Return a maker of servers of another checkout, which has its own environment."""

    def make(directory: Path, upstream: str, cores: set[int]) -> Peer:
        return TollhousePeer(directory, upstream, cores, command=path / ".venv/bin/tollhouse")

    return make


PEERS: dict[str, MakePeer] = {
    "tollhouse": TollhousePeer,
    "tollhouse, module": with_module,
    "collector, fsync": collector(fsync=True),
    "collector, no fsync": collector(fsync=False),
    "phoenix": phoenix,
    "mlflow": mlflow,
}
