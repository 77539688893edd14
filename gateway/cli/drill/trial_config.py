"""The configuration of a drill: the operator's own, with everything that leaves the machine replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from exporters.settings import DestinationSettings, UpstreamSettings
from gateway.configuration.sections import Config, DeviceSettings, LoggingSettings, ServerSettings

MOST_HOLD_S = 10.0  # a drill waits for records to close, several times
DATA = "data"


def trial_config(config: Config, *, scratch: Path, receiver: str, listen: str) -> Config:
    """
    Data in the scratch directory, one destination on loopback, no upstream, no devices, no public address.

    Limits, retention, prices, attribution and privacy are the operator's.
    """
    server = ServerSettings(
        listen=listen,
        grpc_listen="",
        max_body_bytes=config.server.max_body_bytes,
        max_inflight_bytes=config.server.max_inflight_bytes,
    )
    return replace(
        config,
        data_dir=scratch / DATA,
        server=server,
        spool=replace(config.spool, hold=min(config.spool.hold, MOST_HOLD_S)),
        upstream=UpstreamSettings(),
        destinations=(DestinationSettings(name="drill", type="webhook", url=receiver),),
        devices=DeviceSettings(policy="closed"),
        sources={},
        streams=(),
        publish=(),
        log=LoggingSettings(level="warning"),
    )
