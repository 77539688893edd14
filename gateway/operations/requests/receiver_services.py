"""The services of receivers (HTTP and gRPC)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.http.cors import Cors
from gateway.http.handler_services import KeyAdmission, RequestCounters
from gateway.http.listening.forwarded import TrustedProxies
from gateway.http.pending_requests import ReceivingSlots, RequestsInHand
from gateway.http.turns import EventLoopJobBatch
from gateway.normalise.outcome import ReadOptions
from spool.turns.fair_turns import FairTurnScheduler

if TYPE_CHECKING:
    from gateway.configuration.secret_file import SecretFile
    from gateway.core.first_use import LazyValue
    from gateway.http.inflight_bytes import InflightBytes
    from gateway.http.listening.connections import OpenConnections
    from gateway.intake.merge_window import ReportMergeWindow, SharedMergeWindow
    from gateway.normalise.otlp.decoding.compiled_decoder import CompiledTracesDecoder
    from spool.clock import Clock


@dataclass(kw_only=True)
class ReceiverServices:
    """
    The services that every address for key holders needs: admission, body limits and the intake.

    A reload replaces `min_upload_rate`, `options` and `signing_secret`.
    """

    access: KeyAdmission
    intake: ReportMergeWindow | SharedMergeWindow
    metrics: RequestCounters
    clock: Clock
    inflight: InflightBytes
    max_body_bytes: int
    connections: OpenConnections  # connections of the listener for senders
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    min_upload_rate: int = 0  # minimum bytes per second of a large body; 0 sets no minimum
    options: ReadOptions = field(default_factory=ReadOptions)
    cors: Cors = field(default_factory=Cors)
    receiving: ReceivingSlots = field(default_factory=ReceivingSlots)
    in_hand: RequestsInHand = field(default_factory=RequestsInHand)
    signing_secret: SecretFile | None = None  # secret with which Helicone's webhooks are verified
    # decoder of spans with the compiled module, or None without the module
    compiled_decoder: LazyValue[CompiledTracesDecoder] | None = None
    turns: FairTurnScheduler = field(default_factory=FairTurnScheduler)
    # decoder for small bodies that arrive together
    together: EventLoopJobBatch = field(default_factory=EventLoopJobBatch)
