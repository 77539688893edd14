"""
A certificate that ends soon is named with one severity on every face, for each setting that names a certificate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from exporters.settings import DestinationSettings, NotifySettings, UpstreamSettings
from gateway.cli import main
from gateway.configuration.certificates import certificate_troubles, read_certificate_expiries
from gateway.configuration.sections import Config, OidcSettings
from gateway.configuration.server import ServerSettings
from spool.engines import POSTGRES
from spool.ledger.periods import minute_text
from spool.settings import StorageSettings
from tests.acceptance.conftest import ARCHIVE, Tollhouse
from tests.integration.states import faces

NOW = datetime.now(UTC).replace(microsecond=0)
KEY = ec.generate_private_key(ec.SECP256R1())
SETTINGS = (
    "server.tls_cert_file",
    "server.tls_client_ca_file",
    "upstream.ca_file",
    "destinations[0].ca_file",
    "destinations[0].tls_cert_file",
    "notify[0].ca_file",
    "oidc.ca_file",
    "sslcert in storage.dsn_file",
    "sslrootcert in storage.dsn_file",
)


def pem(*days: float) -> bytes:
    """Return certificates that expire in these days."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW - timedelta(days=400))
    ends = [builder.not_valid_after(NOW + timedelta(days=each)) for each in days]
    made = [each.sign(KEY, hashes.SHA256()) for each in ends]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in made)


def config(files: dict[str, Path]) -> Config:
    return Config(
        server=ServerSettings(
            tls_cert_file=files["server.tls_cert_file"], tls_client_ca_file=files["server.tls_client_ca_file"]
        ),
        upstream=UpstreamSettings(ca_file=files["upstream.ca_file"]),
        destinations=(
            DestinationSettings(
                ca_file=files["destinations[0].ca_file"], tls_cert_file=files["destinations[0].tls_cert_file"]
            ),
        ),
        notify=(NotifySettings(ca_file=files["notify[0].ca_file"]),),
        oidc=OidcSettings(ca_file=files["oidc.ca_file"]),
        storage=StorageSettings(engine=POSTGRES, dsn_file=dsn_file(files)),
    )


def dsn_file(files: dict[str, Path]) -> Path:
    """Write the address of a PostgreSQL with both certificates."""
    names = ("sslcert", "sslrootcert")
    words = [f"{name}='{files[f'{name} in storage.dsn_file']}'" for name in names]
    path = files["oidc.ca_file"].with_name("dsn")
    path.write_text(" ".join(("host=db.example.com sslmode=verify-full", *words)))
    return path


def _named(section: object) -> Iterator[str]:
    """Yield the names of all settings of certificates in a section, with those of the lists' elements."""
    if isinstance(section, Config):
        yield from _named(DestinationSettings())
        yield from _named(NotifySettings())
    if is_dataclass(section):
        for field in fields(section):
            if field.name.endswith(("cert_file", "ca_file")):
                yield field.name
            yield from _named(getattr(section, field.name))


def test_every_setting_of_a_certificate_is_walked(tmp_path: Path) -> None:
    """Every setting that names a certificate is reported on its own, so that a new setting cannot be forgotten."""
    settings = [name.rpartition(".")[2] for name in SETTINGS if " in " not in name]
    assert sorted(settings) == sorted(_named(Config()))
    for ending in SETTINGS:
        files = {name: tmp_path / name for name in SETTINGS}
        for name, path in files.items():
            path.write_bytes(pem(3 if name == ending else 300))
        [trouble] = certificate_troubles(read_certificate_expiries(config(files)), now=NOW.timestamp())
        assert ending == trouble.setting


@pytest.mark.parametrize(
    ("setting", "days", "severity"),
    [
        ("server.tls_cert_file", (14.01,), None),
        ("server.tls_cert_file", (14,), "warning"),
        ("server.tls_cert_file", (3.01,), "warning"),
        ("server.tls_cert_file", (3,), "critical"),
        ("server.tls_cert_file", (0,), "critical"),
        ("server.tls_cert_file", (), "critical"),
        ("server.tls_cert_file", (300, 10), "warning"),
        ("upstream.ca_file", (300, 10), None),
        ("upstream.ca_file", (1, 10), "warning"),
        ("sslcert in storage.dsn_file", (300, 10), "warning"),
        ("sslrootcert in storage.dsn_file", (300, 10), None),
        ("sslrootcert in storage.dsn_file", (1, 10), "warning"),
    ],
)
def test_the_severity_follows_the_end(
    tmp_path: Path, setting: str, days: tuple[float, ...], severity: str | None
) -> None:
    """
    The severity of a certificate follows its end. For a chain it is the earliest end of its certificates, for a
    list of authorities the latest. A file without a certificate is critical.
    """
    files = {name: tmp_path / name for name in SETTINGS}
    for path in files.values():
        path.write_bytes(pem(300))
    files[setting].write_bytes(pem(*days))
    troubles = certificate_troubles(read_certificate_expiries(config(files)), now=NOW.timestamp())
    assert ([] if severity is None else [severity]) == [trouble.severity for trouble in troubles]


@pytest.mark.parametrize(
    ("address", "named"),
    [
        (
            "postgresql://db.example.com/t?sslmode=verify-full&sslrootcert={}",
            ["sslrootcert in storage.dsn_env"],
        ),
        ("postgresql://db.example.com/t?sslcert={}&sslrootcert=system", ["sslcert in storage.dsn_env"]),
        ("host=db.example.com sslrootcert='' sslcert={}", ["sslcert in storage.dsn_env"]),
        ("host=db.example.com sslrootcert=system", []),
        ("no address {}", []),
        ("", []),
    ],
)
def test_each_form_of_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, named: list[str]
) -> None:
    """An address in a variable, as a URL or in words is read. The authorities of the system are no file."""
    path = tmp_path / "certificate.pem"
    path.write_bytes(pem(3))
    monkeypatch.setenv("TOLLHOUSE_DSN", address.format(path))
    storage = StorageSettings(engine=POSTGRES, dsn_env="TOLLHOUSE_DSN")
    ends = read_certificate_expiries(Config(storage=storage))
    assert named == [end.setting for end in ends]
    assert all(end.ends_at == (NOW + timedelta(days=3)).timestamp() for end in ends)


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("host=db.example.com", ["sslcert in PGSSLCERT", "sslrootcert in PGSSLROOTCERT"]),
        ("host=db.example.com sslcert={}", ["sslcert in storage.dsn_env", "sslrootcert in PGSSLROOTCERT"]),
        ("host=db.example.com sslrootcert=system", ["sslcert in PGSSLCERT"]),
        ("host=db.example.com sslrootcert=''", ["sslcert in PGSSLCERT"]),
        ("no address", []),
    ],
)
def test_certificates_in_variables_of_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, named: list[str]
) -> None:
    """
    If the database's address names no certificate, the connection uses that of PostgreSQL's environment variable. A
    list of authorities ends with its last one.
    """
    path = tmp_path / "certificate.pem"
    path.write_bytes(pem(3, 9))
    monkeypatch.setenv("TOLLHOUSE_DSN", address.format(path))
    monkeypatch.setenv("PGSSLCERT", str(path))
    monkeypatch.setenv("PGSSLROOTCERT", str(path))
    ends = read_certificate_expiries(
        Config(storage=StorageSettings(engine=POSTGRES, dsn_env="TOLLHOUSE_DSN"))
    )
    days = {"sslcert": 3, "sslrootcert": 9}
    expected = {name: (NOW + timedelta(days=days[name.partition(" ")[0]])).timestamp() for name in named}
    assert expected == {end.setting: end.ends_at for end in ends}


def test_check_names_a_certificate_of_the_database(tmp_path: Path) -> None:
    """`tollhouse check` warns of a certificate that only the address of the database names."""
    (tmp_path / "ca.pem").write_bytes(pem(10))
    (tmp_path / "dsn").write_text(
        f"host=db.example.com sslmode=verify-full sslrootcert={tmp_path / 'ca.pem'}"
    )
    storage = f'[storage]\nengine = "postgres"\ndsn_file = "{tmp_path / "dsn"}"\nsecret_file = "secret"\n'
    storage += '[spool]\nmax_bytes = "1GiB"\n'
    (tmp_path / "tollhouse.toml").write_text(storage)
    done = CliRunner().invoke(main, ["check", "--config", str(tmp_path / "tollhouse.toml")])
    assert "The certificate of sslrootcert in storage.dsn_file expires on" in done.output


HOOK = """
[[destinations]]
name = "store"
type = "clickhouse"
url = "https://127.0.0.1:9/db"
ca_file = "ca.pem"
[upstream]
base_url = "https://127.0.0.1:9"
ca_file = "upstream.pem"
"""


def test_all_faces_agree(tmp_path: Path) -> None:
    """Overview, insight, doctor, check and metric state the same certificates, words and times."""
    house = Tollhouse(tmp_path, ARCHIVE.format(server="", hold="0s", more=HOOK))
    (tmp_path / "ca.pem").write_bytes(pem(10))
    (tmp_path / "upstream.pem").write_bytes(pem(2))
    house.start()
    try:
        planted = {"destinations[1].ca_file": (10, "warning"), "upstream.ca_file": (2, "critical")}
        causes, insights = faces.causes(house), faces.insights(house)
        said = [(status, words) for status, about, words in faces.diagnoses(house) if about == "attention"]
        code, checked = faces.check(house)
        shown = faces.metrics(house)
        assert 1 == code
        for setting, (days, severity) in planted.items():
            at = (NOW + timedelta(days=days)).timestamp()
            title = f"The certificate of {setting} expires on {minute_text(at, NOW.timestamp())}"
            assert severity == causes[title]["severity"] == insights[title]["severity"]
            status = "problem" if severity == "critical" else "warning"
            assert [status] == [mark for mark, words in said if words.startswith(title)]
            texts = checked["problems" if severity == "critical" else "warnings"]
            assert 1 == sum(text.startswith(title) for text in texts)
            assert at == shown[f'tollhouse_certificate_end_timestamp_seconds{{setting="{setting}"}}']
    finally:
        house.stop(code=None)
