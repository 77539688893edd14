"""Sends the bodies of a command to a gateway, and reports the counts. Knows no format of records."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

import click

from gateway.cli import exit_with_message
from gateway.cli.output import show_json
from gateway.cli.send.request_bodies import (
    UNREADABLE,
    AcknowledgedBodies,
    RunningDigest,
    UploadBody,
    file_type_and_size,
    files_to_send,
    open_ungzipped,
    read_bodies,
    unreadable_message,
)
from gateway.cli.send.upload import (
    BodyRefused,
    BodyTooLarge,
    RejectedItem,
    Undeliverable,
    UploadClient,
    UploadCounts,
    WrongKey,
    new_http_session,
)
from spool.printable import replace_unprintable
from spool.registry.scopes import SEND_AI_TELEMETRY

DEFAULT_URL = "http://127.0.0.1:4318"
KEY_ENV = "TOLLHOUSE_KEY"
KEY_COMMAND = f'tollhouse keys create --name send --use-case "{SEND_AI_TELEMETRY}"'
MOST_NAMED = 20  # maximum rejected items that are printed per run


def add_target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that send to a gateway: its address and the key."""
    options = (
        click.option(
            "--to",
            "url",
            default=DEFAULT_URL,
            show_default=True,
            metavar="URL",
            help="Address of the gateway.",
        ),
        click.option(
            "--key-file", type=click.Path(path_type=Path, dir_okay=False), help="File with the key."
        ),
        click.option(
            "--key-env",
            default=KEY_ENV,
            show_default=True,
            metavar="NAME",
            help="Environment variable with the key.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


class BodyCallCounter(Protocol):
    """Counts of items in the accepted bodies. `hint` is a message about them, or ""."""

    def count_calls_in_body(self, body: bytes) -> None: ...

    def as_json(self) -> dict[str, object]: ...

    @property
    def hint(self) -> str: ...


class UploadTarget:
    """The address and the key of an upload. The constructor exits with code 2 if they can never work."""

    def __init__(
        self, url: str, key_file: Path | None, key_env: str, *, path: str, key_command: str = KEY_COMMAND
    ) -> None:
        _check_gateway_address(url)
        self.key = _read_key_or_exit(key_file, key_env)
        self.endpoint = url.rstrip("/") + path
        self.key_command = key_command
        self.hint = "" if self.key else f" (no key was sent; set {key_env}, or use --key-file)"


def deliver_uploads(
    target: UploadTarget,
    file_names: tuple[str, ...],
    named_body: tuple[UploadBody, str] | None,
    older_calls: BodyCallCounter | None,
    *,
    resends_acknowledged: bool,
    as_json: bool,
) -> None:
    """
    Send the body in `named_body`, which has a name for messages, or else the named files. Exits with 1 if
    anything was rejected. Prints the counts even if sending fails.
    """

    async def send_uploads_and_report() -> bool:
        async with new_http_session() as client:
            upload = UploadClient(client, target.endpoint, target.key, notify=_print_error)
            sent_before = AcknowledgedBodies(url=target.endpoint, key=target.key)
            run = _SendRun(
                upload, sent_before, older_calls, resends_acknowledged=resends_acknowledged, as_json=as_json
            )
            try:
                if named_body is not None:
                    await run.send_body(*named_body)
                else:
                    await run.send_files(file_names)
            finally:
                run.print_result()
        return run.complete

    try:
        complete = asyncio.run(send_uploads_and_report())
    except WrongKey as error:
        exit_with_message(f"{error}{target.hint}. On the gateway, `{target.key_command}` creates such a key")
    except Undeliverable as error:
        exit_with_message(f"{error}{target.hint}")
    if not complete:
        sys.exit(1)


class _SendRun:
    def __init__(
        self,
        client: UploadClient,
        acknowledged_bodies: AcknowledgedBodies,
        older_calls: BodyCallCounter | None,
        *,
        resends_acknowledged: bool,
        as_json: bool,
    ) -> None:
        self._client = client
        self._taken = acknowledged_bodies
        self._older = older_calls
        self._again = resends_acknowledged
        self._counts = UploadCounts()
        self._skipped = 0
        self._rejected = 0
        self._hints: dict[str, None] = {}  # hints from the gateway's responses, each listed once
        self._listed: list[dict[str, str]] | None = [] if as_json else None
        self._answered = False
        self._cannot_remember = False
        self.complete = True

    async def send_files(self, file_names: tuple[str, ...]) -> None:
        """Send files one after the other. Reports files that cannot be read, and continues."""
        names = list(files_to_send(file_names, self._report_failure))
        with _progress_bar(names) as advance:
            for name in names:
                try:
                    with _open_file_or_stdin(name) as raw:
                        await self._send_file(raw, name, advance)
                except UNREADABLE as error:
                    self._report_failure(unreadable_message(name, error))

    async def send_body(self, body: UploadBody, name: str) -> bool:
        try:
            answer = await self._client.send_until_answered(body)
        except BodyRefused as error:
            if isinstance(error, BodyTooLarge) and len(body.items) > 1:
                return all([await self.send_body(half, name) for half in body.split_in_halves()])
            self._counts.rejected["refused"] += len(body.items)
            self._report_failure(f"{name}, {body.position_in_file(None)}: {error}")
            return False
        self._counts.add_answer(answer)
        if self._older is not None:
            self._older.count_calls_in_body(body.content)
        self._answered = True
        if answer.hint:
            self._hints[answer.hint] = None
        for item in answer.items:
            self._report_rejected_item(
                name, item, item.position_in_file(body, may_item_become_several=answer.unfolds)
            )
        return True

    def print_result(self) -> None:
        """Print the counts and a line for each reason of rejection, or all of it as JSON."""
        counts = self._counts
        if self._listed is not None:
            show_json(
                {
                    "accepted": counts.accepted,
                    "ignored": counts.ignored,
                    "rejected": counts.rejected.total(),
                    "sent_before": self._skipped,
                    "reasons": dict(sorted(counts.rejected.items())),
                    "items": self._listed,
                    **({} if self._older is None else self._older.as_json()),
                    **({"hints": list(self._hints)} if self._hints else {}),
                }
            )
            return
        if not (self._answered or self._skipped or counts.rejected):
            return
        line = f"accepted {counts.accepted}, ignored {counts.ignored}, rejected {counts.rejected.total()}"
        click.echo(f"{line}, sent before {self._skipped}" if self._skipped else line)
        for reason, n in sorted(counts.rejected.items()):
            click.echo(f"  rejected as {reason}: {n}")
        for message in filter(None, [self._older and self._older.hint, *self._hints]):
            click.echo(message)
        if self._rejected > MOST_NAMED:
            _print_error(
                f"{self._rejected - MOST_NAMED:,} more items were rejected; only the first "
                f"{MOST_NAMED} are listed above"
            )

    async def _send_file(self, raw: IO[bytes], name: str, advance: Callable[[IO[bytes]], None]) -> None:
        with open_ungzipped(raw) as content:
            for body in read_bodies(content, RunningDigest(self._taken)):
                if body.known and not self._again:
                    self._skipped += len(body.items)
                elif await self.send_body(body, name):
                    self._store_body_digest_or_warn(body.mark)
                advance(raw)

    def _report_rejected_item(self, file: str, item: RejectedItem, where: str) -> None:
        """
        List a rejected item, up to MOST_NAMED.

        The body still counts as sent, because a repeat would be rejected again.
        """
        self._rejected += 1
        self.complete = False
        if self._listed is not None:
            self._listed.append(
                {"file": file, "place": where, "reason": item.reason, "message": item.message}
            )
        elif self._rejected <= MOST_NAMED:
            _print_error(replace_unprintable(f"{file}, {where}: {item.explanation}"))

    def _store_body_digest_or_warn(self, body_digest: bytes) -> None:
        try:
            self._taken.store_body_digest(body_digest)
        except OSError as error:
            if not self._cannot_remember:
                _print_error(f"{error.filename}: {error.strerror}; a later run cannot skip what is sent now")
            self._cannot_remember = True

    def _report_failure(self, message: str) -> None:
        self.complete = False
        _print_error(message)


def _print_error(message: str) -> None:
    click.echo(f"tollhouse: {message}", err=True)


def _check_gateway_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # urlsplit raises ValueError if the port is not a number or a bracket is not closed
        usable = False
    if not usable:
        raise click.UsageError(f"--to: {url!r} is not an address such as {DEFAULT_URL}")
    if "@" in parts.netloc:
        raise click.UsageError(
            "--to must not contain a user or password; pass the key with --key-file or --key-env"
        )


def _read_key_or_exit(key_file: Path | None, key_env: str) -> str | None:
    origin = f"the environment variable {key_env}"
    key = os.environ.get(key_env, "").strip()
    if key_file is not None:
        origin = str(key_file)
        try:
            key = key_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            exit_with_message(f"{key_file}: {getattr(error, 'strerror', None) or 'is not text'}", 2)
    if any(character.isspace() or not character.isprintable() for character in key):
        exit_with_message(f"{origin} must contain one key on one line", 2)
    return key or None


@contextmanager
def _open_file_or_stdin(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as raw:
        yield raw


@contextmanager
def _progress_bar(names: list[str]) -> Iterator[Callable[[IO[bytes]], None]]:
    sizes = {name: file_type_and_size(name).size for name in names if name != "-"}
    shown = sys.stderr.isatty() and sum(sizes.values()) > 0
    if not shown:
        yield lambda raw: None
        return
    with click.progressbar(length=sum(sizes.values()), file=sys.stderr, label="sending") as bar:
        last: tuple[IO[bytes] | None, int] = None, 0

        def advance_to_position(raw: IO[bytes]) -> None:
            nonlocal last
            if raw.seekable():
                position = raw.tell()
                bar.update(position - (last[1] if raw is last[0] else 0))
                last = raw, position

        yield advance_to_position
