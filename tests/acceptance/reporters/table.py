"""
The sets of reporters of one call, and the requests of each set.

P: the Claude API. S: an Anthropic SDK. Fi and Fn: a framework that reports the id of the response, or no id.
G: LiteLLM's log. E: Envoy's access log. A: Claude Code.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.acceptance.reporters.log_reports import (
    CHAT,
    MESSAGES,
    STREAMED,
    of_claude_code,
    of_envoy,
    of_litellm,
)
from tests.acceptance.reporters.made_call import MS, MadeCall, hex_of
from tests.acceptance.reporters.span_reports import (
    TWO_RUNS,
    USAGES,
    WITH_ID,
    WITHOUT_ID,
    Framework,
    Place,
    Report,
    below,
    new_root,
    of_framework,
    of_platform,
    of_sdk,
    split,
    trace_request,
)

REPORTERS = ("P", "S", "Fi", "Fn", "G", "E", "A")


@dataclass(frozen=True, kw_only=True)
class ReporterSet:
    """
    The reporters of one call. `ways` are forms of their reports that are the same for every call of the set; all
    other forms vary between calls.
    """

    reporters: tuple[str, ...]
    failed: bool
    ways: tuple[str, ...] = ()

    @property
    def failures(self) -> int:
        return int(self.failed) + (RETRIED in self.ways)

    @property
    def name(self) -> str:
        words = ["failed"] * self.failed + ["+".join(self.reporters)]
        return " ".join(words) + "".join(f", {way}" for way in self.ways)


# Ways to make a call that only some sets have.
# LiteLLM does not translate this call, so its log names the call by the id of the response
UNTRANSLATED = "not translated by LiteLLM"
# LiteLLM removes the header with the request id from failures
NO_REQUEST_ID = "the caller sees no request id"
NO_HEADER = "Envoy does not log the header"
RETRIED = "after a failed attempt"  # only the Claude API reports the attempt that failed
RUNS_APART = "its model runs apart"  # two runs of the model, each in another request than their call


def sets() -> list[ReporterSet]:
    """Return all sets that can be joined by facts that the reports have, and the sets that cannot."""
    found = []
    for failed, framework in product((False, True), (None, "Fi", "Fn")):
        for flags in product((True, False), repeat=5):
            chosen = {name for name, flag in zip(("P", "S", "G", "E", "A"), flags, strict=True) if flag}
            reporters = tuple(one for one in REPORTERS if one in chosen or one == framework)
            if reporters and not _lacks_any_link(reporters, failed):
                found.append(ReporterSet(reporters=reporters, failed=failed))
    return found + further_sets()


def _lacks_any_link(reporters: Sequence[str], failed: bool) -> bool:
    """
    Return True if a framework states no id, and the SDK below it does not report. `further_sets` has one such
    set for each other reporter.
    """
    without_id = "Fn" in reporters or (failed and "Fi" in reporters)
    return without_id and "S" not in reporters and len(reporters) > 1


def further_sets() -> list[ReporterSet]:
    return [
        *(ReporterSet(reporters=pair, failed=False) for pair in (("P", "Fn"), ("Fn", "G"), ("Fn", "A"))),
        ReporterSet(reporters=("G", "E"), failed=False, ways=(UNTRANSLATED,)),
        ReporterSet(reporters=("P",), failed=False, ways=(RUNS_APART,)),
        ReporterSet(reporters=("S", "G"), failed=True, ways=(NO_REQUEST_ID,)),
        ReporterSet(reporters=("P", "S", "G"), failed=True, ways=(NO_REQUEST_ID,)),
        ReporterSet(reporters=("G", "A"), failed=True, ways=(NO_REQUEST_ID,)),
        ReporterSet(reporters=("P", "E"), failed=False, ways=(NO_HEADER,)),
        ReporterSet(reporters=("S", "E"), failed=False, ways=(NO_HEADER,)),
        *(
            ReporterSet(reporters=("P", *more), failed=False, ways=(RETRIED,))
            for more in (("S",), ("S", "Fi"), ("A",))
        ),
    ]


class Piece(NamedTuple):
    """One request that one reporter sends about a call."""

    reporter: str
    report: Report


def pieces(one: ReporterSet, call: MadeCall, number: int, dice: random.Random) -> list[Piece]:
    """Return the requests of a set about a call. `number` chooses the forms of the reports, so that all occur."""
    found: list[Piece] = []
    reporting = _Reporting(one, call, number, dice)
    for reporter in one.reporters:
        if reporter in ("G", "E", "A"):
            found.append(Piece(reporter, reporting.log(reporter)))
            continue
        spans = reporting.spans(reporter)
        is_cut = dice.random() < 0.4 and not (reporter == "P" and reporting.has_two_runs)
        apart = list(split(spans)) if is_cut or RUNS_APART in one.ways else [spans]
        as_json = dice.random() < 0.3
        found += [Piece(reporter, trace_request(part, as_json=as_json)) for part in apart]
    if RETRIED in one.ways:
        found.append(Piece("P", trace_request(reporting.failed_attempt(), as_json=False)))
    return found


class _Reporting:
    """The reports of one call, with the relations between their traces that real clients have."""

    def __init__(self, one: ReporterSet, call: MadeCall, number: int, dice: random.Random) -> None:
        self._set, self._call, self._number, self._dice = one, call, number, dice
        self._framework: tuple[Framework, Place] | None = None
        self._sdk: Place | None = None
        if {"Fi", "Fn"} & set(one.reporters):
            known = WITH_ID if "Fi" in one.reporters else WITHOUT_ID
            able = [each for each in known.values() if each.failures or not call.failed]
            self._framework = able[number % len(able)], new_root(dice)
        if "S" in one.reporters:
            self._sdk = new_root(dice)
            if self._framework is not None and self._framework[0].holds_sdk:
                self._sdk = below(dice, self._framework[1])
        self._way = self._way_through_litellm()
        self._usage = TWO_RUNS if RUNS_APART in one.ways else USAGES[number % len(USAGES)]

    @property
    def has_two_runs(self) -> bool:
        return self._usage == TWO_RUNS

    def spans(self, reporter: str) -> ResourceSpans:
        if reporter == "P":
            return self._platform(self._call)
        if reporter == "S":
            return self._sdk_spans()
        assert self._framework is not None
        return of_framework(self._framework[0], self._call, self._framework[1], self._dice)

    def _platform(self, call: MadeCall) -> ResourceSpans:
        """
        Return the spans of the Claude API. They are below the SDK's span, except on the Claude Platform on AWS and
        behind LiteLLM.
        """
        place = new_root(self._dice)
        if self._sdk is not None and self._number % 3 != 2 and NO_REQUEST_ID not in self._set.ways:
            place = below(self._dice, self._sdk)
        return of_platform(call, place, self._dice, usage=self._usage)

    def failed_attempt(self) -> ResourceSpans:
        """
        Return the spans of a failed first attempt. The client reports the call with the id of its last attempt.
        """
        call = self._call
        end_ns = call.moment(0.05)
        attempt = replace(call, failed=True, request_id=f"req_{hex_of(self._dice, 12)}", end_ns=end_ns)
        return self._platform(attempt)

    def log(self, reporter: str) -> Report:
        if reporter == "E":
            return of_envoy(self._call, self._dice, request_id=NO_HEADER not in self._set.ways)
        if reporter == "A":
            has_id = NO_REQUEST_ID not in self._set.ways
            return of_claude_code(self._call, request_id=has_id, is_relayed="G" in self._set.reporters)
        return of_litellm(
            self._call,
            self._dice,
            way=self._way,
            trace=None if self._sdk is None else self._sdk.trace,
            from_claude_code="A" in self._set.reporters,
        )

    def _way_through_litellm(self) -> str:
        """
        Choose how LiteLLM was called. Claude Code streams. If Envoy's log reports the call without the Claude API's
        spans, choose a way in which another report has both ids of the call, if there is one.
        """
        reporters = set(self._set.reporters)
        ways = [MESSAGES, STREAMED]
        if UNTRANSLATED in self._set.ways:
            ways = [MESSAGES]
        elif "A" in reporters or reporters >= {"S", "E"}:
            ways = [STREAMED]
        elif reporters == {"G", "E"}:
            ways = [CHAT]
        elif reporters <= {"P", "G", "E"}:  # the client of these calls speaks OpenAI's protocol
            ways.append(CHAT)
        return ways[self._number % len(ways)]

    def _sdk_spans(self) -> ResourceSpans:
        assert self._sdk is not None
        call, dice = self._call, self._dice
        # LiteLLM passes the header of streamed answers on, and removes the header of whole answers.
        hidden = "G" in self._set.reporters and self._way == MESSAGES and not call.failed
        has_id = not hidden and NO_REQUEST_ID not in self._set.ways
        language = ("python", "typescript")[self._number % 2]
        # the framework's span is some milliseconds longer than that of the SDK
        if self._framework is not None:
            language = self._framework[0].language
            call = replace(call, start_ns=call.start_ns + 3 * MS, end_ns=call.end_ns - 4 * MS)
        streamed = self._way == STREAMED or self._number % 2 == 1
        spans = of_sdk(call, self._sdk, dice, language=language, streamed=streamed, request_id=has_id)
        if self._framework is not None:  # the framework and the SDK are in one process
            spans.resource.CopyFrom(self.spans("F").resource)
        return spans
