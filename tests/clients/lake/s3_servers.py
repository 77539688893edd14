"""Servers that speak S3, as processes on loopback."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from exporters.destinations.catalogue import destination_secret
from exporters.errors import SendError
from exporters.lake.destination import open_store
from exporters.settings import DestinationSettings
from tests.free_ports import free_port
from tests.waiting import wait_until

BUCKET = "acme"
KEY_ID, KEY = "tollhouse", "tollhouse-secret"
_PROXY = """
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v4
s3proxy.identity={key_id}
s3proxy.credential={key}
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={directory}/objects
jclouds.identity=none
jclouds.credential=none
"""


def settings_in(address: str, directory: Path) -> DestinationSettings:
    """
    Return settings of a lake under a prefix with the directory's name, and write the secret into the directory.
    """
    secret = directory / "secret"
    secret.write_text(f"{KEY_ID}\n{KEY}\n")
    url = f"s3://{BUCKET}/{directory.name}"
    return DestinationSettings(name="lake", type="s3", url=url, endpoint=address, secret_file=secret)


@contextmanager
def versitygw(program: Path, directory: Path) -> Iterator[str]:
    """Yield the address of a gateway to `directory/objects`, in which each folder is a bucket."""
    port = free_port()
    words = (str(program), "--port", f"127.0.0.1:{port}", "posix", str(directory / "objects"))
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": KEY}
    with _running(words, directory, port, environment) as address:
        yield address


@contextmanager
def s3proxy(java: Sequence[str], directory: Path) -> Iterator[str]:
    """Yield the address of a proxy to `directory/objects` that ignores conditions."""
    port = free_port()
    properties = directory / "s3proxy.properties"
    properties.write_text(_PROXY.format(port=port, key_id=KEY_ID, key=KEY, directory=directory))
    quiet = directory / "logback.xml"
    quiet.write_text("<configuration/>")
    option = f"-Dlogback.configurationFile={quiet}"
    words = (*java, option, "org.gaul.s3proxy.Main", "--properties", str(properties))
    with _running(words, directory, port, dict(os.environ)) as address:
        yield address


@contextmanager
def _running(words: Sequence[str], directory: Path, port: int, environment: dict[str, str]) -> Iterator[str]:
    (directory / "objects" / BUCKET).mkdir(parents=True)
    address = f"http://127.0.0.1:{port}"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
    try:
        _wait(process, directory, address)
        yield address
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], directory: Path, address: str) -> None:
    """Wait until the server knows its bucket."""
    settings = settings_in(address, directory)

    def knows() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        try:
            asyncio.run(open_store(settings, destination_secret(settings)).create_object("begun", b"1"))
        except SendError:
            return False
        return True

    wait_until(knows, (directory / "log").read_text)
