"""TLS of the listeners: one certificate for HTTP and gRPC, read again when its files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from gateway.service.configuration.sections import ServerSettings

_log = logging.getLogger(__name__)

LOOK_S = 10.0  # how often the files are looked at; SIGHUP looks at once


@dataclass(frozen=True)
class CertificateText:
    """The files' PEM text."""

    key: bytes
    cert: bytes
    client_ca: bytes | None


class Certificate:
    """
    A certificate with its key, and the authority of client certificates if clients must show one.

    OSError when a file cannot be read or the files do not belong together.
    """

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None) -> None:
        self._cert, self._key, self._client_ca = cert_file, key_file, client_ca_file
        self._seen = self._stamps()
        self.context = (
            self._read()
        )  # of every HTTP listener; connections that are open keep what they began with
        self.text = self._read_text()

    @property
    def ends_at(self) -> float:
        """Return when the certificate in use ends, in seconds since 1970; 0 if it cannot be read."""
        from cryptography.x509 import load_pem_x509_certificate  # a start without TLS needs none of it

        try:
            return load_pem_x509_certificate(self.text.cert).not_valid_after_utc.timestamp()
        except ValueError:
            return 0.0

    @classmethod
    def of(cls, server: ServerSettings) -> Certificate | None:
        """Return the certificate of the settings; None without TLS."""
        if server.tls_cert_file is None or server.tls_key_file is None:
            return None
        return cls(server.tls_cert_file, server.tls_key_file, server.tls_client_ca_file)

    def configure(self, server: ServerSettings) -> bool:
        """Use the files of these settings, for new connections; whether they are others, or hold something else."""
        if server.tls_cert_file and server.tls_key_file:
            self._cert, self._key, self._client_ca = (
                server.tls_cert_file,
                server.tls_key_file,
                server.tls_client_ca_file,
            )
        return self.renew()

    def renew(self) -> bool:
        """Take over changed files for new connections. When they cannot be used, the old ones stay in use."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return False
            self._read()  # whether they belong together, before the context in use learns of them
            self.context.load_cert_chain(self._cert, self._key)
            if self._client_ca is not None:
                self.context.load_verify_locations(self._client_ca)
            self.text = self._read_text()
        except OSError as error:
            extra = {"action": "certificate_unusable", "file": str(self._cert), "error": str(error)}
            _log.error("the changed certificate cannot be used; the one before stays in use", extra=extra)
            return False
        self._seen = stamps
        _log.info(
            "took over a changed certificate",
            extra={"action": "certificate_renewed", "file": str(self._cert)},
        )
        return True

    async def watch(self) -> None:
        """Renew whenever the files change, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.renew()

    def _read(self) -> ssl.SSLContext:
        """TLS 1.2 or later; with a client CA a client must show a certificate of it."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._client_ca)
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _read_text(self) -> CertificateText:
        client_ca = None if self._client_ca is None else self._client_ca.read_bytes()
        return CertificateText(self._key.read_bytes(), self._cert.read_bytes(), client_ca)

    def _stamps(self) -> list[tuple[int, int, int]]:
        """Return the inode, time and size of each file: a changed file differs, a replaced link too."""
        files = (self._cert, self._key, self._client_ca)
        stats = [file.stat() for file in files if file is not None]
        return [(each.st_ino, each.st_mtime_ns, each.st_size) for each in stats]
