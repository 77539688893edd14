from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


class Certificates:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._openssl(
            "req", "-x509", "-nodes", *_KEY, "-subj", "/CN=tests", "-keyout", "ca.key", "-out", "ca.pem"
        )
        for name in ("server", "client"):
            self._issue(name)

    @property
    def server(self) -> dict[str, Path]:
        """Return `[server]` settings for mutual TLS."""
        return {
            "tls_cert_file": self.path("server.pem"),
            "tls_key_file": self.path("server.key"),
            "tls_client_ca_file": self.path("ca.pem"),
        }

    def path(self, name: str) -> Path:
        return self._directory / name

    def client(self) -> ssl.SSLContext:
        context = self.anonymous()
        context.load_cert_chain(self.path("client.pem"), self.path("client.key"))
        return context

    def anonymous(self) -> ssl.SSLContext:
        """Return a client context that trusts the CA but has no certificate of its own."""
        return ssl.create_default_context(cafile=self.path("ca.pem"))

    def _issue(self, name: str) -> None:
        self.path("extensions").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl(
            "req", "-nodes", *_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-extfile", "extensions", "-out", f"{name}.pem",
        )  # fmt: skip

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._directory, check=True, capture_output=True, timeout=120)


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
