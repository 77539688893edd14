"""
The expiry of all certificates that the configuration names, for all lists, commands, metrics and insights
about certificates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

from gateway.configuration.sections import Config
from spool.engines import certificate_files
from spool.ledger.periods import minute_text
from spool.registry.notices import CRITICAL, WARNING
from spool.settings import DATABASE_AUTHORITIES, DAY_S

SOON_S = 14 * DAY_S
CRITICAL_S = 3 * DAY_S
# endings of the settings with a certificate file, and with a file of trusted authorities
OWN, AUTHORITIES = "cert_file", "ca_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateExpiry:
    """
    A setting with a certificate. `ends_at` is when the certificate expires, or None if it cannot be read.
    """

    setting: str
    ends_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateTrouble:
    setting: str
    severity: str
    title: str
    seen: str
    newest: float | None  # since when it is that severe

    @property
    def text(self) -> str:
        return f"{self.title}. {self.seen}"


def read_certificate_expiries(
    config: Config, in_use: Mapping[str, bytes] | None = None
) -> Sequence[CertificateExpiry]:
    """
    Read the expiry of all certificates of a configuration. `in_use` has the PEM text of certificates that a
    running server has loaded, by setting. It counts instead of the file, because the server uses it until the
    files are valid.
    """
    loaded = in_use or {}
    return [
        CertificateExpiry(setting=name, ends_at=_expiry_time(name, loaded.get(name) or _read_or_empty(path)))
        for name, path in (*_certificate_files(config, ""), *certificate_files(config.storage))
    ]


def certificate_troubles(
    expiries: Iterable[CertificateExpiry], *, now: float
) -> Sequence[CertificateTrouble]:
    """Return the certificates that cannot be read, have expired or expire within two weeks."""
    troubles = (_certificate_trouble(end, now) for end in expiries)
    return [trouble for trouble in troubles if trouble is not None]


def _certificate_trouble(expiry: CertificateExpiry, now: float) -> CertificateTrouble | None:
    at = expiry.ends_at
    if at is None:
        title, severity = f"The certificate of {expiry.setting} cannot be read", CRITICAL
    elif at <= now:
        title, severity = f"The certificate of {expiry.setting} expired on {minute_text(at, now)}", CRITICAL
    elif at <= now + SOON_S:
        title = f"The certificate of {expiry.setting} expires on {minute_text(at, now)}"
        severity = CRITICAL if at <= now + CRITICAL_S else WARNING
    else:
        return None
    seen = (
        "Connections that need it fail."
        if at is None or at <= now
        else "Connections that need it fail after that."
    )
    newest = None if at is None else at - (CRITICAL_S if severity == CRITICAL else SOON_S)
    return CertificateTrouble(
        setting=expiry.setting, severity=severity, title=title, seen=seen, newest=newest
    )


def _certificate_files(section: object, name: str) -> Iterator[tuple[str, Path]]:
    if isinstance(section, tuple):
        for index, each in enumerate(section):
            yield from _certificate_files(each, f"{name}[{index}]")
    elif isinstance(section, Path) and name.endswith((OWN, AUTHORITIES)):
        yield name, section
    elif is_dataclass(section):
        for field in fields(section):
            yield from _certificate_files(getattr(section, field.name), f"{name}.{field.name}".lstrip("."))


def _read_or_empty(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _expiry_time(setting: str, pem: bytes) -> float | None:
    # imported here because a start without TLS does not need it
    from cryptography.x509 import load_pem_x509_certificates

    try:
        ends = [each.not_valid_after_utc.timestamp() for each in load_pem_x509_certificates(pem)]
    except ValueError:
        return None
    is_list = setting.endswith(AUTHORITIES) or setting.startswith(DATABASE_AUTHORITIES)
    return max(ends) if is_list else min(ends)
