"""`tollhouse send`: uploads files to a gateway, or sends a first example call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.parameters import Choice
from gateway.cli.send.delivery import UploadTarget, add_target_options, deliver_uploads
from gateway.cli.send.request_bodies import UploadBody
from gateway.core.errors import BadPayload, Refusal
from gateway.normalise.formats.engine.declaration import ExampleCall
from gateway.normalise.formats.list import FORMAT_NAMES, FORMATS, recognise_format_or_refuse
from gateway.normalise.outcome import ReadOptions

_NS: Final = 1_000_000_000


def _example_export_request(call: ExampleCall) -> Any:
    attributes = {
        "gen_ai.operation.name": {"stringValue": "chat"},
        "gen_ai.provider.name": {"stringValue": "openai"},
        "gen_ai.request.model": {"stringValue": call.model},
        "gen_ai.response.model": {"stringValue": call.response_model},
        "gen_ai.response.id": {"stringValue": call.response_id},
        "gen_ai.usage.input_tokens": {"intValue": str(call.input_tokens)},
        "gen_ai.usage.output_tokens": {"intValue": str(call.output_tokens)},
    }
    span = {
        "traceId": call.trace_id,
        "spanId": call.span_id,
        "name": f"chat {call.model}",
        "kind": 3,
        "startTimeUnixNano": str(call.start_ns),
        "endTimeUnixNano": str(call.end_ns),
        "attributes": [{"key": name, "value": value} for name, value in attributes.items()],
    }
    service = {"key": "service.name", "value": {"stringValue": "example"}}
    return {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": [{"spans": [span]}]}]}


# Format -> a function that makes a small payload of this format, dated now. It sends a first record
# without a client.
EXAMPLES: dict[str, Callable[[ExampleCall], Any]] = {
    **{format.name: format.example for format in FORMATS},
    "otlp/traces": _example_export_request,
}


def example_payload(format: str, call: ExampleCall | None = None) -> bytes:
    return json.dumps(EXAMPLES[format](call or ExampleCall())).encode()


@click.command()
@click.argument("named", nargs=-1, metavar="FILE...")
@click.option(
    "--as",
    "format",
    type=Choice(FORMAT_NAMES),
    help="Format of the files; default: detected from the content.",
)
@add_target_options
@click.option("--again", is_flag=True, help="Also send what an earlier run has already sent.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts and every rejected item as JSON.")
@click.option(
    "--example",
    "wanted",
    type=Choice(list(EXAMPLES)),
    help="Send one generated call in this format instead of files.",
)
def send(
    named: tuple[str, ...],
    format: str | None,
    url: str,
    key_file: Path | None,
    key_env: str,
    again: bool,
    as_json: bool,
    wanted: str | None,
) -> None:
    """
    Send files with AI calls to a gateway.

    FILE may be JSON, a JSON array, JSON lines, a directory, or - for standard input, each also gzipped.
    Sending a file twice counts nothing twice. After an interruption, run the same command again to continue.

    Rejected items are printed to standard error with their line and the reason (the first 20), and the exit
    code is 1. The command also counts calls from before this month, and prints the report that shows them.
    """
    if bool(named) == bool(wanted):
        raise click.UsageError("give FILEs to send, or --example FORMAT")
    target = UploadTarget(url, key_file, key_env, path=_upload_path(wanted or format))
    older = CallsBeforeThisMonth(wanted or format, time.time())
    single = None if wanted is None else (UploadBody(items=[example_payload(wanted)]), f"example {wanted}")
    deliver_uploads(target, named, single, older, resends_acknowledged=again, as_json=as_json)


def _upload_path(format: str | None) -> str:
    """Return the path for a format. OTLP has no format in the path, because the gateway detects it."""
    is_format_name = format is not None and "/" not in format
    return f"/v1/ai-telemetry/{format}" if is_format_name else "/v1/ai-telemetry"


class CallsBeforeThisMonth:
    """
    Counts of the accepted calls that began before this month (UTC), and the day of the earliest of these calls.
    """

    def __init__(self, format: str | None, now: float) -> None:
        self._format = format
        month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._month_ns = int(month.timestamp()) * _NS
        self._oldest_ns = self._month_ns
        self.calls = 0
        self.older = 0

    def count_calls_in_body(self, body: bytes) -> None:
        """Count the calls of one body. Bodies that only the gateway can read are left out."""
        # loaded late, because --help needs no decoder, and the protobuf library takes most of its time
        from gateway.normalise import any_format
        from gateway.normalise.formats.langfuse.merger import complete_without_later_reports

        try:
            work = any_format.normalise_body(
                self._format or recognise_format_or_refuse(body, how_to_name_format=""),
                body,
                options=ReadOptions(),
            )
            while True:
                next(work)
        except StopIteration as done:
            records = complete_without_later_reports(done.value).records
        except (BadPayload, Refusal):
            return
        starts = [record.start_time for record in records if record.start_time is not None]
        self.calls += len(starts)
        self.older += sum(start < self._month_ns for start in starts)
        self._oldest_ns = min([self._oldest_ns, *starts])

    @property
    def oldest_day(self) -> str | None:
        return datetime.fromtimestamp(self._oldest_ns / _NS, UTC).date().isoformat() if self.older else None

    def as_json(self) -> dict[str, object]:
        return {"older_than_this_month": self.older, "oldest": self.oldest_day}

    @property
    def hint(self) -> str:
        """
        Return which calls a report of this month leaves out, and the command that shows them. "" if none.
        """
        if not self.older:
            return ""
        verb = "is" if self.older == 1 else "are"
        return (
            f"{self.older:,} of {self.calls:,} {verb} from before this month; to see them: tollhouse "
            f"report --from {self.oldest_day}"
        )
