"""An S3 server as a separate process on loopback."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.free_ports import free_port
from tests.waiting import wait_until

BUCKET = "acme"


@contextmanager
def s3_server(directory: Path) -> Iterator[str]:
    """Start a server with one empty bucket; yield its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    program = str(Path(sys.executable).with_name("moto_server"))
    with (directory / "s3.log").open("wb") as log:
        process = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        _make_bucket(address)
        yield address
    finally:
        process.terminate()
        process.wait()


def _make_bucket(address: str) -> None:
    def is_made() -> bool:
        request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT", data=b"")
        try:
            with urllib.request.urlopen(request, timeout=10):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    wait_until(is_made, "the server makes its bucket")
