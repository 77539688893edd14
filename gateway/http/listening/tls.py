"""TLS: one certificate for HTTP and gRPC, loaded again when files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.configuration.server import ServerSettings
from spool.loops import repeat

_log = logging.getLogger(__name__)

LOOK_S = 10.0  # seconds between checks for changed certificate files; SIGHUP checks at once


@dataclass(frozen=True)
class CertificateText:
    key: bytes
    cert: bytes
    client_ca: bytes | None


class _LoggedHandshake(ssl.SSLObject):
    """
    A TLS connection that logs plain HTTP, because asyncio closes a connection after a failed handshake silently.
    """

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                # the address is not known here; with the field, the number of lines is limited
                extra = {"action": "plain_http_on_tls_port", "address": ""}
                _log.warning("plain HTTP arrived on a port with TLS; send to https://", extra=extra)
            raise


class Certificate:
    """
    The TLS certificate in use, with its key and the CA for clients. The constructor raises OSError if a file
    cannot be read or the files do not match.
    """

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None) -> None:
        self._cert, self._key, self._client_ca = cert_file, key_file, client_ca_file
        self._seen = self._file_stamps()
        # TLS context of HTTP listeners; open connections keep their certificate
        self.context = self._load_context()
        self.text = self._read_text()

    @property
    def loaded_pem_by_setting(self) -> Mapping[str, bytes]:
        authorities = (
            {} if self.text.client_ca is None else {"server.tls_client_ca_file": self.text.client_ca}
        )
        return {"server.tls_cert_file": self.text.cert, **authorities}

    @classmethod
    def from_settings(cls, server: ServerSettings) -> Certificate | None:
        if server.tls_cert_file is None or server.tls_key_file is None:
            return None
        return cls(server.tls_cert_file, server.tls_key_file, server.tls_client_ca_file)

    def configure(self, server: ServerSettings) -> bool:
        """Use the files of changed settings. Return whether new connections get another certificate."""
        if server.tls_cert_file and server.tls_key_file:
            self._cert, self._key, self._client_ca = (
                server.tls_cert_file,
                server.tls_key_file,
                server.tls_client_ca_file,
            )
        return self.reload_if_changed()

    def reload_if_changed(self) -> bool:
        """Read the certificate again. If changed files cannot be used, the previous certificate stays."""
        try:
            stamps = self._file_stamps()
            if stamps == self._seen:
                return False
            # load the files into a new context first, so that damaged files do not change the context in use
            self._load_context()
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
            "loaded a changed certificate", extra={"action": "certificate_renewed", "file": str(self._cert)}
        )
        return True

    async def reload_repeatedly(self) -> None:
        async def wait_and_reload() -> None:
            await asyncio.sleep(LOOK_S)
            self.reload_if_changed()

        await repeat(
            wait_and_reload,
            every_s=0.0,
            failed="a changed certificate cannot be used",
            action="certificate_unusable",
        )

    def _load_context(self) -> ssl.SSLContext:
        """Return a context for TLS 1.2 or later. With a client CA, clients must present its certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._client_ca)
        context.sslobject_class = _LoggedHandshake
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _read_text(self) -> CertificateText:
        client_ca = None if self._client_ca is None else self._client_ca.read_bytes()
        return CertificateText(self._key.read_bytes(), self._cert.read_bytes(), client_ca)

    def _file_stamps(self) -> list[tuple[int, int, int]]:
        files = (self._cert, self._key, self._client_ca)
        stats = [file.stat() for file in files if file is not None]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]
