"""A pgbouncer in front of a server, which a test kills and restarts at the same address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.free_ports import free_port
from tests.processes.dependent import DependentProcess
from tests.spool.postgres_cluster import Server, answers, environment, pooler_program, user
from tests.waiting import wait_until

CONFIG = """
[databases]
postgres = host=127.0.0.1 port={server} user={role} dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = 12
unix_socket_dir =
"""


class RestartedPooler:
    """A pgbouncer in transaction mode. `folder` belongs to the server's user."""

    def __init__(self, folder: Path, server: Server, *, role: str = "tollhouse") -> None:
        if pooler_program() is None:
            pytest.skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
        port = free_port()
        self.dsn = f"host=127.0.0.1 port={port} user=tollhouse dbname=postgres sslmode=disable"
        self._file = folder / "pgbouncer.ini"
        self._file.write_text(CONFIG.format(server=server.port, port=port, role=role))
        self._file.chmod(0o644)
        self._process: DependentProcess | None = None

    def start(self) -> None:
        program = str(pooler_program())
        process = DependentProcess([program, "-q", str(self._file)], user=user(), env=environment())
        self._process = process
        wait_until(lambda: process.poll() is not None or answers(self.dsn), "pgbouncer accepts connections")
        assert process.poll() is None, "pgbouncer ended at once"

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()
