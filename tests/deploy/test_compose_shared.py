"""Three gateways on one PostgreSQL as in deploy/, checked statically and run with Debian's PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from gateway.configuration.reader import load_config
from spool.postgres.administration import ADMINISTRATION
from spool.postgres.health import SEES_ALL
from tests.acceptance.conftest import ROOT
from tests.deploy.test_container import CONTAINERFILE, variables
from tests.free_ports import free_port
from tests.spool.postgres_cluster import (
    IMMEDIATELY,
    Server,
    environment,
    folder,
    programs,
    run,
    started,
    user,
)
from tests.tools import program

SHARED = ROOT / "deploy/compose/shared"
SAMPLES = ROOT / "deploy/postgresql"
COMPOSE: Any = yaml.safe_load((SHARED / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
GATEWAYS = ("gateway-1", "gateway-2", "gateway-3")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run secrets.sh; return its folder."""
    program("openssl")
    place = tmp_path_factory.mktemp("shared") / "secrets"
    subprocess.run([str(SHARED / "secrets.sh"), str(place)], check=True, capture_output=True)
    return place


def test_every_file_that_the_services_name_is_there(secrets: Path) -> None:
    """
    Settings and scripts are next to the Compose file, and the script creates the secrets in a private directory.
    """
    for name, each in COMPOSE["configs"].items():
        assert (SHARED / each["file"]).exists(), name
    assert {Path(each["file"]).name for each in COMPOSE["secrets"].values()} == {
        path.name for path in secrets.iterdir()
    }
    assert 0o700 == secrets.stat().st_mode & 0o777
    for name, service in SERVICES.items():
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"]), name
        assert {each["source"] for each in service.get("configs", ())} <= set(COMPOSE["configs"]), name
        assert set(service.get("depends_on", ())) <= set(SERVICES), name
    assert {each.partition(":")[0] for one in SERVICES.values() for each in one.get("volumes", ())} == set(
        COMPOSE["volumes"]
    )


def test_the_gateways_are_alike_and_their_settings_load(secrets: Path, tmp_path: Path) -> None:
    """
    All gateways have the same image with PostgreSQL's library and the same settings file. The secret has the
    addresses of both databases.
    """
    first, *others = ({**SERVICES[name], "hostname": "", "volumes": []} for name in GATEWAYS)
    assert [first, first] == others
    assert first["read_only"] is True
    assert first["cap_drop"] == ["ALL"]
    built = first["build"]
    assert CONTAINERFILE == (SHARED / built["context"] / built["dockerfile"]).resolve()
    assert "psycopg==" in (ROOT / "deploy/locks" / built["args"]["REQUIREMENTS"]).read_text()
    inside = (SHARED / "tollhouse.toml").read_text().replace("/run/secrets", str(secrets))
    path = tmp_path / "tollhouse.toml"
    for text in (inside, re.sub(r"^# (?=\[|\w+ = )", "", inside, flags=re.MULTILINE)):
        path.write_text(text)
        config = load_config(path, env=variables())
    assert config.storage.dsn_file == secrets / "dsn"
    assert config.storage.secret_file == secrets / "installation_secret"
    assert 32 == len((secrets / "installation_secret").read_bytes())
    assert "host=primary,standby " in (secrets / "dsn").read_text()


def test_balancer_lists_every_gateway_and_checks_its_readiness() -> None:
    text = (SHARED / "haproxy.cfg").read_text()
    for name, port in (("gateways", 4318), ("gateways_grpc", 4317)):
        backend = re.split(r"\n\n", text.partition(f"\nbackend {name}\n")[2])[0]
        assert "GET /readyz" in backend
        assert list(GATEWAYS) == re.findall(rf"server (\S+) \1:{port} .*\bcheck\b", backend)
    assert re.findall(r"bind :(\d+)", text) == [
        each.partition(":")[0] for each in SERVICES["balancer"]["ports"]
    ]


CONFIRMS = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"


@pytest.fixture(scope="module")
def database(secrets: Path) -> Iterator[Server]:
    """Start a server like the image: with the settings file, then with the script for new data."""
    with folder() as place:
        server = Server(place / "data", {})
        run("initdb", "-D", str(server.folder), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        key = place / "key"
        shutil.copy(secrets / "database_key", key)
        key.chmod(0o600)
        certificate = place / "certificate"
        shutil.copy(secrets / "database_certificate", certificate)
        certificate.chmod(0o644)
        if name := user():
            shutil.chown(key, name)
        settings = (SHARED / "postgresql.conf").read_text()
        settings = settings.replace("/etc/database_key", str(key))
        settings = settings.replace("/run/secrets/database_certificate", str(certificate))
        settings += f"port = {server.port}\nunix_socket_directories = '{place}'\nfsync = off\n"
        settings = settings.replace("listen_addresses = '*'", "listen_addresses = '127.0.0.1'")
        (place / "settings").write_text(settings.replace("512MB", "32MB"))
        # the access rules (pg_hba.conf) of the PostgreSQL image
        (server.folder / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        primary = started(server.folder, place / "log", "-c", f"config_file={place / 'settings'}")
        try:
            variables = {"SECRETS": str(secrets), "POSTGRES_USER": "postgres", "PGDATA": str(server.folder)}
            variables |= {"PGHOST": str(place), "PGPORT": str(server.port)}
            binaries = f"{programs()}:{os.environ['PATH']}"
            done = subprocess.run(
                [str(SHARED / "roles.sh")],
                env={**environment(), **variables, "PATH": binaries},
                capture_output=True,
                text=True,
            )
            assert 0 == done.returncode, done.stderr
            run("pg_ctl", "-D", str(server.folder), "reload")
            yield server
        finally:
            primary.end(IMMEDIATELY)


def test_the_role_reaches_its_database_under_either_name(database: Server, secrets: Path) -> None:
    """With the secret's address the certificate is verified, and the role may read the state of standbys."""
    told = (secrets / "dsn").read_text().strip().replace("/run/secrets", str(secrets))
    for name in ("primary", "standby"):
        dsn = told.replace("host=primary,standby", f"host={name} hostaddr=127.0.0.1 port={database.port}")
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert connection.execute(SEES_ALL.encode()).fetchone() == (True,)
            assert connection.execute("SHOW synchronous_standby_names").fetchone() == ("standby",)
    with pytest.raises(psycopg.OperationalError, match="certificate"):
        psycopg.connect(
            told.replace("host=primary,standby", f"host=other hostaddr=127.0.0.1 port={database.port}")
        )


async def test_standby_replicates_the_primary_under_the_awaited_name(
    database: Server, secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The standby uses the script's address and the name that the primary waits for.

    The test then creates the tables like `tollhouse storage init` with the gateways' settings, and checks
    that nothing is missing.
    """
    place = database.folder.parent
    monkeypatch.setenv("HOME", str(place))
    authority = place / "ca"
    shutil.copy(secrets / "database_ca", authority)
    authority.chmod(0o644)
    address = re.findall(r'address="(.*)"', (SHARED / "database.sh").read_text())[0]
    address = address.replace("$password", (secrets / "replication_password").read_text())
    address = address.replace("host=primary", f"host=primary hostaddr=127.0.0.1 port={database.port}")
    address += f" sslmode=verify-full sslrootcert={authority}"
    data = str(place / "standby")
    run("pg_basebackup", "--dbname", address, "--pgdata", data, "--wal-method", "stream", "--write-recovery-conf",
        "--checkpoint", "fast", "--no-sync")  # fmt: skip
    port = free_port()
    (place / "settings-of-standby").write_text(f"{(place / 'settings').read_text()}port = {port}\n")
    settings = f"config_file={place / 'settings-of-standby'}"
    standby = started(Path(data), place / "log-of-standby", "-c", settings)
    try:
        with psycopg.connect(f"host={place} port={database.port} user=postgres", autocommit=True) as looking:
            while looking.execute(CONFIRMS).fetchone() is None:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.02)
        dsn = (secrets / "dsn").read_text().strip().replace("/run/secrets", str(secrets))
        both = f"host=primary,standby hostaddr=127.0.0.1,127.0.0.1 port={database.port},{port}"
        dsn_file = tmp_path / "dsn"
        dsn_file.write_text(dsn.replace("host=primary,standby", both))
        path = tmp_path / "tollhouse.toml"
        path.write_text((SHARED / "tollhouse.toml").read_text().replace("/run/secrets", str(secrets)))
        config = load_config(path, env=variables())
        storage = replace(config.storage, dsn_file=dsn_file)
        made = await ADMINISTRATION.make(storage, config.spool)
        assert made["version_before"] == 0
        assert made["secret_made"] is False
        found = await ADMINISTRATION.status(storage)
        assert found["problem"] == ""
        assert found["synchronous_standbys"] == 1
        assert found["synchronous_standby_names"] == "standby"
    finally:
        standby.end(IMMEDIATELY)


def test_postgresql_accepts_the_parameters_of_the_samples(database: Server) -> None:
    """Each parameter of the Patroni and CloudNativePG samples exists and accepts its value."""
    patroni = yaml.safe_load((SAMPLES / "patroni.yaml").read_text())
    cluster = yaml.safe_load((SAMPLES / "cloudnative-pg.yaml").read_text())["spec"]
    shared = patroni["bootstrap"]["dcs"]
    assert shared["synchronous_mode"] is True
    assert shared["synchronous_mode_strict"] is True
    assert {"method": "any", "number": 1, "dataDurability": "required"} == cluster["postgresql"][
        "synchronous"
    ]
    parameters = shared["postgresql"]["parameters"] | cluster["postgresql"]["parameters"]
    folder = programs()
    assert folder is not None
    for name, value in parameters.items():
        command = [str(folder / "postgres"), "-D", str(database.folder), "-C", name, "-c", f"{name}={value}"]
        done = subprocess.run(
            command, user=user(), env=environment(), cwd="/", capture_output=True, text=True
        )
        assert 0 == done.returncode, done.stderr
    assert ["GRANT pg_monitor TO tollhouse"] == cluster["bootstrap"]["initdb"]["postInitSQL"]
