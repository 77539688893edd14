"""`tollhouse send`: files to a gateway, and a first record without a client."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import click

from gateway.cli import fail
from gateway.cli.acknowledged import Acknowledged
from gateway.cli.courier import Courier, Refused, Tally, Undeliverable, session
from gateway.cli.cuts import Body, bodies, files, opened
from gateway.cli.examples import EXAMPLES, example
from gateway.errors import BadPayload
from gateway.normalise import formats

DEFAULT_URL = "http://127.0.0.1:4318"
KEY_ENV = "TOLLHOUSE_KEY"


@click.command()
@click.argument("named", nargs=-1, metavar="FILE...")
@click.option("--as", "format", type=click.Choice(formats.FORMATS), help="The files' format (default: found).")
@click.option("--to", "url", default=DEFAULT_URL, show_default=True, metavar="URL", help="The gateway.")
@click.option("--key-file", type=click.Path(path_type=Path, dir_okay=False), help="A file that holds the key.")
@click.option("--key-env", default=KEY_ENV, show_default=True, metavar="NAME", help="The variable that holds the key.")
@click.option("--again", is_flag=True, help="Also send what an earlier run already brought there.")
@click.option("--example", "wanted", type=click.Choice(list(EXAMPLES)), help="Send one made-up call of a format.")
def send(
    named: tuple[str, ...],
    format: str | None,
    url: str,
    key_file: Path | None,
    key_env: str,
    again: bool,
    wanted: str | None,
) -> None:
    """
    Send FILEs to a gateway: JSON, arrays or lines, gzipped or not, whole directories, `-` for the standard input.

    Sending a file twice counts nothing twice. A run that was stopped goes on where it was.
    """
    if bool(named) == bool(wanted):
        raise click.UsageError("name FILEs to send, or ask for an --example")
    key = _key(key_file, key_env)
    try:
        complete = asyncio.run(_send(named, wanted, format, url.rstrip("/"), key, again=again))
    except Undeliverable as error:
        fail(str(error))
    if not complete:
        sys.exit(1)


async def _send(
    named: tuple[str, ...], wanted: str | None, format: str | None, url: str, key: str | None, *, again: bool
) -> bool:
    """Whether everything was taken; says what became of it all in any case."""
    run = _Run(format, again=again)
    try:
        async with session() as client:
            run.courier = Courier(client, _door(url, wanted or format), key)
            if wanted is not None:
                await run.body(Body(example(wanted), 1), f"example {wanted}")
            else:
                await run.files(list(files(named)), _door(url, format))
    finally:
        run.report()
    return run.complete


class _Run:
    """One run of the command."""

    courier: Courier

    def __init__(self, format: str | None, *, again: bool) -> None:
        self._format = format
        self._again = again
        self._tally = Tally()
        self._skipped = 0
        self._spoken = False
        self.complete = True

    async def files(self, names: list[str], url: str) -> None:
        """One after the other; a file that cannot be read is no reason to keep the others."""
        with _bar(names) as advance:
            for name in names:
                try:
                    with _source(name) as raw:
                        await self._file(raw, name, url, advance)
                except (OSError, EOFError) as error:
                    self._complain(f"{name}: {getattr(error, 'strerror', None) or error}")
                except BadPayload as error:
                    self._complain(f"{name}: {error.message}")

    async def body(self, body: Body, name: str) -> bool:
        """Whether it was taken."""
        try:
            self._tally.note(await self.courier.send(body))
        except Refused as error:
            self._tally.rejected["refused"] += body.items
            self._complain(f"{name}: {error}")
            return False
        self._spoken = True
        return True

    def report(self) -> None:
        """One line on what was done, one for each reason of a reject."""
        tally = self._tally
        if not (self._spoken or self._skipped or tally.rejected):
            return
        line = f"accepted {tally.accepted}, ignored {tally.ignored}, rejected {tally.rejected.total()}"
        click.echo(f"{line}, sent before {self._skipped}" if self._skipped else line)
        for reason, n in sorted(tally.rejected.items()):
            click.echo(f"  rejected as {reason}: {n}")

    async def _file(self, raw: IO[bytes], name: str, url: str, advance: Any) -> None:
        done = Acknowledged.of(raw, url=url, format=self._format)
        if self._again:
            done.forget()
        for number, body in enumerate(bodies(opened(raw))):
            if number in done:
                self._skipped += body.items
            elif await self.body(body, f"{name}, part {number + 1}"):
                done.add(number)
            advance(raw.tell())

    def _complain(self, message: str) -> None:
        self.complete = False
        click.echo(f"tollhouse: {message}", err=True)


def _door(url: str, format: str | None) -> str:
    """The door finds OTLP by itself: its names are no part of a path."""
    named = format is not None and "/" not in format
    return f"{url}/v1/ai-telemetry/{format}" if named else f"{url}/v1/ai-telemetry"


def _key(key_file: Path | None, key_env: str) -> str | None:
    if key_file is None:
        return os.environ.get(key_env)
    try:
        return key_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{key_file}: {getattr(error, 'strerror', None) or 'is not text'}", 2)


@contextmanager
def _source(name: str) -> Iterator[IO[bytes]]:
    """A file that can go back to its beginning; the standard input is read to its end first."""
    if name == "-":
        yield io.BytesIO(sys.stdin.buffer.read())
        return
    with Path(name).open("rb") as raw:
        yield raw


@contextmanager
def _bar(names: list[str]) -> Iterator[Any]:
    """A progress bar on a terminal, nothing elsewhere; moved by the place in the file that is being sent."""
    total = sum(Path(name).stat().st_size for name in names if name != "-" and Path(name).is_file())
    shown = sys.stderr.isatty() and total > 0
    with click.progressbar(length=total, file=sys.stderr, label="sending") if shown else nullcontext() as bar:
        at = 0

        def advance(place: int) -> None:
            nonlocal at
            if bar is not None:
                bar.update(place - at if place >= at else place)
            at = place

        yield advance
