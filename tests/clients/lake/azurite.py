"""Azure's own blob emulator as a process on loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.free_ports import free_port
from tests.waiting import wait_until

ACCOUNT, CONTAINER = "devstoreaccount1", "acme"
# the public key that every emulator has
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def azurite(place: Path, directory: Path) -> Iterator[str]:
    """
    Yield the address of an account with one empty container. `place` is the folder of the installed package.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}/{ACCOUNT}"
    program = str(place / "node_modules/.bin/azurite-blob")
    words = ("--silent", "--location", str(directory), "--blobPort", str(port), "--skipApiVersionCheck")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([program, *words], stdout=log, stderr=log)
    try:
        _make_container(address)
        yield address
    finally:
        process.kill()  # kill the emulator, because on SIGTERM it waits minutes for open client connections
        process.wait()


def _make_container(address: str) -> None:

    def is_made() -> bool:
        request = urllib.request.Request(f"{address}/{CONTAINER}?restype=container", method="PUT", data=b"")
        for name, value in _signed().items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=10):
                return True
        except urllib.error.HTTPError:
            raise
        except (urllib.error.URLError, ConnectionError):
            return False

    wait_until(is_made, "the server makes its container")


def _signed() -> dict[str, str]:
    """Sign the request that creates the container with the account's key."""
    own = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 4, "application/octet-stream", *[""] * 6]
    lines += [f"{name}:{value}" for name, value in own.items()]
    lines += [f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}", "restype:container"]
    sum = hmac.digest(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256)
    signature = base64.b64encode(sum).decode()
    kind = {"Content-Type": "application/octet-stream"}
    return {**own, **kind, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
