"""
A PostgreSQL server for tests: created by initdb in a temporary folder, on loopback, run by an unprivileged user.

The programs come from Debian's package, which `make test` installs if it can. Without them these tests are skipped.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import SerializationFailure

from spool.clock import Clock
from spool.postgres.connections import lane
from spool.postgres.connections.target import CONNECTING, LIMITS
from spool.postgres.database import Database
from spool.postgres.migrations import VERSIONS
from spool.settings import LOCAL, NO_POOLER, POSTGRES, TRANSACTION, StorageSettings
from tests.free_ports import free_port
from tests.processes.dependent import DependentProcess
from tests.waiting import wait_until

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
    "logging_collector": "off",
}
STANDBY = "standby"
PATIENCE = ("-w", "-t", "600")
# These settings are for tests of stored content, not of crashes, so that nothing waits for the disk.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
# An operator may have made these settings, so Tollhouse must not rely on better ones: commits wait for no
# standby, and statements have no limits.
IMMEDIATELY = signal.SIGQUIT  # of a server, which then recovers at its next start
NO_LIMIT = "11min"
CARELESS = {
    "synchronous_commit": "local",
    "default_transaction_isolation": "repeatable read",
    "lock_timeout": NO_LIMIT,
    "statement_timeout": NO_LIMIT,
    "idle_in_transaction_session_timeout": NO_LIMIT,
}
# This trigger refuses writes that lack the settings of Tollhouse's methods, so that no method can forget
# them.
GUARD = f"""
    CREATE FUNCTION public.guard() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF current_setting('application_name') LIKE 'tollhouse %'
         AND (current_setting('synchronous_commit') = 'local'
              OR current_setting('transaction_isolation') = 'repeatable read'
              OR '{NO_LIMIT}' IN (current_setting('lock_timeout'), current_setting('statement_timeout'),
                                  current_setting('idle_in_transaction_session_timeout')))
      THEN
        RAISE EXCEPTION 'written without the settings that each transaction has to have: %', TG_RELID::regclass;
      END IF;
      RETURN NULL;
    END $$;
    CREATE FUNCTION public.guard_tables() RETURNS event_trigger LANGUAGE plpgsql AS $$
    DECLARE made record;
    BEGIN
      FOR made IN SELECT objid::regclass AS name FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE'
      LOOP
        EXECUTE format('CREATE TRIGGER guard AFTER INSERT OR UPDATE OR DELETE ON %s'
                       ' FOR EACH STATEMENT EXECUTE FUNCTION public.guard()', made.name);
      END LOOP;
    END $$;
    CREATE EVENT TRIGGER guard ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.guard_tables()"""
# `make test` unpacks PostgreSQL's packages here, without root.
UNPACKED = Path(__file__).parents[2] / ".venv/postgresql"
# With TOLLHOUSE_POOLER=transaction (`make proofs PART=spool`), every test with a schema runs behind pgbouncer.
BEHIND_POOLER = os.environ.get("TOLLHOUSE_POOLER") == TRANSACTION
_NUMBERS = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A schema for one test. The test's storage creates it, and it is dropped or emptied after the test."""

    dsn: str
    name: str
    pooler: str = NO_POOLER

    def behind(self, pooler: str) -> Schema:
        """Return the same schema, reached through pgbouncer."""
        return replace(self, dsn=pooler, pooler=TRANSACTION)

    def database(self, *, clock: Clock | None = None) -> Database:
        """Return the schema's connections. The caller closes them."""
        return Database(self.dsn, schema=self.name, clock=clock, pooled=self.pooler != NO_POOLER)

    def settings(self, directory: Path) -> StorageSettings:
        """Return the storage settings of a node on this schema, with its files in `directory`."""
        dsn_file, secret_file = directory / "postgres.dsn", directory / "postgres.secret"
        dsn_file.write_text(f"{self.dsn}\n")
        secret_file.write_bytes(b"s" * 32)
        return StorageSettings(
            engine=POSTGRES,
            dsn_file=dsn_file,
            schema=self.name,
            secret_file=secret_file,
            durability=LOCAL,
            pooler=self.pooler,
        )


def storage_table(folder: Path, *, dsn: str, schema: str, durability: str = LOCAL, more: str = "") -> str:
    """
    Return the `[storage]` table for every gateway of one installation, whose address and secret are in `folder`.

    `more` has further lines of the table.
    """
    dsn_file, secret_file = folder / "dsn", folder / "installation.secret"
    dsn_file.touch(mode=0o600)
    dsn_file.write_text(dsn)
    if not secret_file.exists():
        secret_file.touch(mode=0o600)
        secret_file.write_bytes(os.urandom(32))
    return f"""
[storage]
engine = "postgres"
dsn_file = "{dsn_file}"
schema = "{schema}"
secret_file = "{secret_file}"
durability = "{durability}"
{more}
"""


class Server:
    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: DependentProcess | None = None
        self._settings = {
            **SETTINGS,
            "port": str(self.port),
            "unix_socket_directories": str(folder),
            **settings,
        }

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=tollhouse dbname=postgres sslmode=disable"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def initialise(self) -> None:
        """Copy a data directory that initdb created."""
        as_user("cp", "-R", f"{_made()}/.", str(self.folder))

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        self._write()
        self._process = started(self.folder, self.folder / "server.log")

    def stop(self) -> None:
        """Stop the server at once. Its next start recovers like after a crash."""
        assert self._process is not None
        self._process.end(IMMEDIATELY)

    def freeze(self) -> None:
        """Stop all processes of the server. The system still accepts connections for them."""
        postmaster = self._postmaster()
        # stop the postmaster first, so that it starts no further processes
        os.kill(postmaster, signal.SIGSTOP)
        for child in _children(postmaster):
            os.kill(child, signal.SIGSTOP)

    def thaw(self) -> None:
        postmaster = self._postmaster()
        for child in (*_children(postmaster), postmaster):
            os.kill(child, signal.SIGCONT)

    def _postmaster(self) -> int:
        return int((self.folder / "postmaster.pid").read_text().split()[0])

    def change(self, **settings: str) -> None:
        """
        Change settings of the running server, and wait until all its processes have them.

        The postmaster notifies all processes at once, so the wait ends when one process has the new settings.
        The process that decides whether commits wait for standbys reads settings before each checkpoint. Two
        checkpoints are run, because the first may have started before the change.
        """
        self._settings.update(settings)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            before = connection.execute(LOADED_AT).fetchone()
            self._write()
            connection.execute("SELECT pg_reload_conf()")
            wait_until(lambda: connection.execute(LOADED_AT).fetchone() != before, "the settings are loaded")
            for _ in range(2):
                connection.execute("CHECKPOINT")

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement in a new connection and return its rows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _write(self) -> None:
        with (self.folder / "postgresql.auto.conf").open("w") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())


def started(data: Path, log: Path, *options: str) -> DependentProcess:
    """Start a server that ends with the test run; return its process when it accepts connections."""
    programs_folder = programs()
    assert programs_folder is not None
    command = [str(programs_folder / "postgres"), "-D", str(data), *options]
    with log.open("ab") as output:
        process = DependentProcess(
            command, end_signal=IMMEDIATELY, user=user(), env=environment(), stdout=output
        )
    state = data / "postmaster.pid"

    def accepts() -> bool:
        assert process.poll() is None, log.read_text()
        lines = state.read_text().splitlines() if state.exists() else []
        return len(lines) > 7 and int(lines[0]) == process.pid and lines[7].strip() in ("ready", "standby")

    wait_until(accepts, log.read_text)
    return process


LOADED_AT = "SELECT pg_conf_load_time()"
HAS_ALL = "SELECT bool_and(replay_lsn >= pg_current_wal_lsn()) FROM pg_stat_replication"


class Pair:
    """A primary and its synchronous standby, for which every commit waits. Both flush to disk."""

    def __init__(self, place: Path, **settings: str) -> None:
        self.primary = Server(place / "primary", {"synchronous_standby_names": STANDBY, **settings})
        self.standby = self.standby_named(STANDBY)

    def standby_named(self, name: str) -> Server:
        """Return a further standby of the primary. `copy_to` fills it."""
        conninfo = f"host=127.0.0.1 port={self.primary.port} user=tollhouse application_name={name}"
        return Server(self.primary.folder.parent / name, {"primary_conninfo": conninfo})

    @property
    def dsn(self) -> str:
        """Return an address of both servers that selects the one that accepts writes."""
        ports = f"{self.primary.port},{self.standby.port}"
        return f"host=127.0.0.1,127.0.0.1 port={ports} user=tollhouse dbname=postgres sslmode=disable"

    def start(self) -> None:
        self.primary.initialise()
        self.standby.initialise()
        as_user("touch", str(self.standby.folder / "standby.signal"))
        self.primary.start()
        self.standby.start()

    def copy_to(self, standby: Server) -> None:
        run("pg_basebackup", "-D", str(standby.folder), "-h", "127.0.0.1", "-p", str(self.primary.port),
            "-U", "tollhouse", "-c", "fast", "-R", "--no-sync")  # fmt: skip

    def stop(self) -> None:
        for server in (self.standby, self.primary):
            if server.is_running:
                server.stop()

    def catch_up(self) -> None:
        """Wait until the standby has everything."""
        wait_until(lambda: self.primary.execute(HAS_ALL) == [(True,)], "the standby has everything")

    def promote(self) -> None:
        """Promote the standby to a primary that waits for no standby."""
        run("pg_ctl", "-D", str(self.standby.folder), *PATIENCE, "promote")


SUCCESSOR = "successor"


@contextmanager
def confirming(server: Server) -> Iterator[DependentProcess]:
    """Run a receiver of the write-ahead log, which can confirm commits as a standby named SUCCESSOR."""
    folder = programs()
    assert folder is not None
    dsn = f"host=127.0.0.1 port={server.port} user=tollhouse application_name={SUCCESSOR}"
    with tempfile.TemporaryDirectory(prefix="tollhouse-receiver-") as place:
        if name := user():
            shutil.chown(place, name)
        command = [str(folder / "pg_receivewal"), "-D", place, "-d", dsn, "--synchronous"]
        process = DependentProcess(command, user=name, env=environment())
        try:
            yield process
        finally:
            process.end()


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has already ended
            pid, rest = int(status.parent.name), status.read_text().rpartition(")")[2].split()
            if int(rest[1]) == parent:
                found.append(pid)
    return found


def programs() -> Path | None:
    """Return the folder of the newest PostgreSQL server programs, or None."""
    named = os.environ.get("TOLLHOUSE_POSTGRES")
    if named:
        return Path(named)
    for place in (Path("/"), UNPACKED):
        found = sorted(place.glob("usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        if found:
            return found[-1].parent
    own = shutil.which("initdb")
    return Path(own).parent if own else None


def user() -> str | None:
    """Return the user for the server, because it refuses to run as root. None means the current user."""
    if os.getuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def run(program: str, *arguments: str) -> None:
    """Run a PostgreSQL program. On failure, raise an error with its output."""
    folder = programs()
    assert folder is not None
    command = [str(folder / program), *arguments]
    done = subprocess.run(
        command,
        user=user(),
        env=environment(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"


def environment() -> dict[str, str]:
    """Return the environment in which the programs find libraries that were unpacked with them."""
    libraries = ":".join(str(path) for path in UNPACKED.glob("usr/lib/*-linux-gnu"))
    return {**os.environ, "LD_LIBRARY_PATH": libraries} if libraries else dict(os.environ)


@cache
def _made() -> Path:
    """
    Return a data directory of initdb that each server copies, because creating one takes a second
    of processor time.
    """
    place = ExitStack()
    atexit.register(place.close)
    made = place.enter_context(folder()) / "made"
    names = ("-U", "tollhouse", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
    run("initdb", "-D", str(made), *names)
    return made


def as_user(*command: str) -> None:
    """Run a command as the server's user, which may be the only one that can read the server's files."""
    subprocess.run(command, user=user(), cwd="/", check=True)


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a temporary folder that the server's user owns and can reach."""
    if programs() is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian: apt-get install postgresql)")
    path = Path(tempfile.mkdtemp(prefix="tollhouse-postgres-"))
    name = user()
    if name:
        shutil.chown(path, name)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Server]:
    """One server for all tests of a process, without the flushes that only a system crash requires."""
    with folder() as path:
        server = Server(path, NOT_DURABLE | CARELESS)
        server.initialise()
        server.start()
        try:
            server.execute(GUARD)
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def pooler(cluster: Server) -> Iterator[str]:
    """
    The address of a pgbouncer in front of the shared server. All clients share two sessions, one transaction
    at a time.
    """
    program = pooler_program()
    if program is None:
        pytest.skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    port = free_port()
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": "2",
        "unix_socket_dir": "",
    }
    target = f"host=127.0.0.1 port={cluster.port} user=tollhouse dbname=postgres"
    with folder() as path:
        file = path / "pgbouncer.ini"
        lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
        file.write_text(f"[databases]\npostgres = {target}\n[pgbouncer]\n{lines}\n")
        file.chmod(0o644)
        process = DependentProcess([program, "-q", str(file)], user=user(), env=environment())
        dsn = f"host=127.0.0.1 port={port} user=tollhouse dbname=postgres sslmode=disable"
        try:
            wait_until(lambda: process.poll() is not None or answers(dsn), "pgbouncer accepts connections")
            assert process.poll() is None, "pgbouncer ended at once"
            yield dsn
        finally:
            process.end()


def pooler_program() -> str | None:
    for path in (Path("/usr/sbin/pgbouncer"), UNPACKED / "usr/sbin/pgbouncer"):
        if path.exists():
            return str(path)
    return shutil.which("pgbouncer")


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary with its synchronous standby, for one test that stops or promotes them."""
    with folder() as path:
        both = Pair(path)
        both.start()
        try:
            yield both
        finally:
            both.stop()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Wait longer for locks and the server, in modules that import this, because a test machine may pause for seconds.
    """
    monkeypatch.setattr(lane, "CANCEL_S", 90.0)
    monkeypatch.setitem(CONNECTING, "connect_timeout", 90)
    for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
        monkeypatch.setitem(LIMITS, name, "90s")


class Schemas:
    """
    Schemas for tests that open a storage, because creating sixty tables takes longer than most tests.

    A used schema is reset to its state after the migrations, for the next test.
    """

    def __init__(self, server: Server, pooler: str | None) -> None:
        self._dsn = server.dsn
        self._pooler = pooler
        self._connection = psycopg.connect(server.dsn, autocommit=True)
        # This setting skips all triggers without checking each table, as on a replica.
        self._connection.execute("SET session_replication_role = replica")
        self._connection.execute("SET client_min_messages = warning; SET lock_timeout = '10s'")
        self._free: list[Schema] = []

    def take(self) -> Schema:
        schema = self._free.pop() if self._free else Schema(dsn=self._dsn, name=f"test_{next(_NUMBERS)}")
        return schema.behind(self._pooler) if self._pooler else schema

    def give_back(self, schema: Schema) -> None:
        """Take a schema back. Nothing may have it open."""
        found = self._connection.execute(KINDS, (schema.name,)).fetchall()
        made, first = first_state(schema.name)
        tables = {name for name, kind in found if kind in "rp"}
        if not tables >= made:  # no test opened a storage in this schema
            self._connection.execute(f"DROP SCHEMA IF EXISTS {schema.name} CASCADE".encode())
            return
        statements = [f"DROP TABLE IF EXISTS {schema.name}.{name}" for name in sorted(tables - made)]
        statements += [f"DELETE FROM {schema.name}.{name}" for name in sorted(made - {"facts"})]
        statements.append(
            f"DELETE FROM {schema.name}.facts WHERE name NOT IN ('version', 'oldest_node', 'digests')"
        )
        statements += [f"ALTER SEQUENCE {schema.name}.{name} RESTART" for name, kind in found if kind == "S"]
        text = ";\n".join([*statements, *first]).encode()
        while not self._empty(schema.name, text):
            pass
        self._free.append(schema)

    def _empty(self, name: str, statements: bytes) -> bool:
        """Empty the tables. Return False if a killed process's last statements wrote meanwhile."""
        self._connection.execute(END_HOLDERS, (name,))
        try:
            self._connection.execute(statements)
        except SerializationFailure:
            return False
        return True

    def close(self) -> None:
        self._connection.close()


KINDS = """
    SELECT c.relname, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'S')"""

END_HOLDERS = """
    SELECT pg_terminate_backend(pid, 10000)
      FROM (SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
              JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = %s AND l.pid <> pg_backend_pid()) AS holders"""


@cache
def first_state(schema: str) -> tuple[set[str], list[str]]:
    """Return the tables that the migrations create, and the statements that insert their first rows."""
    text = "\n".join(migration.read_statements() for migration in VERSIONS).replace("{schema}", schema)
    statements = [re.sub(r"(?m)^\s*--.*$", "", one).strip() for one in text.split(";")]
    tables = set(re.findall(rf"CREATE TABLE {schema}\.(\w+)", text)) | {"facts"}
    return tables, [one for one in statements if one.startswith("INSERT")]


@pytest.fixture(scope="session")
def schemas(cluster: Server, request: pytest.FixtureRequest) -> Iterator[Schemas]:
    """The schemas of the shared server, which tests reuse."""
    opened = Schemas(cluster, request.getfixturevalue("pooler") if BEHIND_POOLER else None)
    yield opened
    opened.close()


@pytest.fixture
def new_schema(schemas: Schemas) -> Iterator[Callable[[], Schema]]:
    """
    A function that returns schemas without records. A storage that is opened in one migrates it as usual.
    """
    taken: list[Schema] = []

    def take() -> Schema:
        taken.append(schemas.take())
        return taken[-1]

    yield take
    for schema in taken:
        schemas.give_back(schema)


@pytest.fixture
def new_pooled_schema(new_schema: Callable[[], Schema], pooler: str) -> Callable[[], Schema]:
    """A function that returns such schemas, reached through pgbouncer."""
    return lambda: new_schema().behind(pooler)


@pytest.fixture
def fresh_schema(new_schema: Callable[[], Schema]) -> Schema:
    return new_schema()


@pytest.fixture
def unmade_schemas(cluster: Server) -> Iterator[Callable[[], Schema]]:
    """A function that returns schemas that do not exist yet and are dropped after the test."""
    taken: list[Schema] = []

    def take() -> Schema:
        taken.append(Schema(dsn=cluster.dsn, name=f"test_{next(_NUMBERS)}"))
        return taken[-1]

    yield take
    with psycopg.connect(cluster.dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        for schema in taken:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema.name} CASCADE".encode())


@pytest.fixture
def unmade_schema(unmade_schemas: Callable[[], Schema]) -> Schema:
    return unmade_schemas()
