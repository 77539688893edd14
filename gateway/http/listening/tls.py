"""TLS of the listeners: one certificate for HTTP and gRPC, loaded again when its files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.configuration.sections import ServerSettings

_log = logging.getLogger(__name__)

LOOK_S = 10.0  # seconds between two checks of the files; SIGHUP checks at once


@dataclass(frozen=True)
class CertificateText:
    """PEM text of the certificate files."""

    key: bytes
    cert: bytes
    client_ca: bytes | None


class Certificate:
    """
    A certificate with its key, and the certificate authority of clients if client certificates are required.

    Raises OSError if a file cannot be read or the files do not match.
    """

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None) -> None:
        self._cert, self._key, self._client_ca = cert_file, key_file, client_ca_file
        self._seen = self._stamps()
        # the TLS context of every HTTP listener; open connections keep the certificate with which they began
        self.context = self._read()
        self.text = self._read_text()

    @property
    def in_use(self) -> Mapping[str, bytes]:
        """Return the PEM text of the certificates in use, by setting."""
        authorities = (
            {} if self.text.client_ca is None else {"server.tls_client_ca_file": self.text.client_ca}
        )
        return {"server.tls_cert_file": self.text.cert, **authorities}

    @classmethod
    def of(cls, server: ServerSettings) -> Certificate | None:
        if server.tls_cert_file is None or server.tls_key_file is None:
            return None
        return cls(server.tls_cert_file, server.tls_key_file, server.tls_client_ca_file)

    def configure(self, server: ServerSettings) -> bool:
        """Use the files of these settings for new connections. Return whether the certificate changed."""
        if server.tls_cert_file and server.tls_key_file:
            self._cert, self._key, self._client_ca = (
                server.tls_cert_file,
                server.tls_key_file,
                server.tls_client_ca_file,
            )
        return self.renew()

    def renew(self) -> bool:
        """
        Use changed files for new connections and return True. If the changed files cannot be used, keep
        the previous certificate.
        """
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return False
            self._read()  # read the files once for a check, before the context in use is changed
            self.context.load_cert_chain(self._cert, self._key)
            if self._client_ca is not None:
                self.context.load_verify_locations(self._client_ca)
            self.text = self._read_text()
        except OSError as error:
            extra = {"action": "certificate_unusable", "file": str(self._cert), "error": str(error)}
            _log.error(
                "the changed certificate cannot be used; the previous certificate stays in use", extra=extra
            )
            return False
        self._seen = stamps
        _log.info(
            "loaded a changed certificate",
            extra={"action": "certificate_renewed", "file": str(self._cert)},
        )
        return True

    async def watch(self) -> None:
        """Check the files at regular intervals, forever, and load them when they change."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.renew()

    def _read(self) -> ssl.SSLContext:
        """
        Return a context for TLS 1.2 or later. With a client CA, clients must present a certificate from it.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._client_ca)
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _read_text(self) -> CertificateText:
        client_ca = None if self._client_ca is None else self._client_ca.read_bytes()
        return CertificateText(self._key.read_bytes(), self._cert.read_bytes(), client_ca)

    def _stamps(self) -> list[tuple[int, int, int]]:
        """
        Return the inode, the modification time and the size of each file. At least one of them changes if a
        file is changed or a link is replaced.
        """
        files = (self._cert, self._key, self._client_ca)
        stats = [file.stat() for file in files if file is not None]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]
