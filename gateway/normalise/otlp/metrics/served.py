"""
Counters of servers that run models: what they served, whoever asked for it.

Each call that a client, an SDK or a gateway tells is in them, so they repeat calls unless the operator says
that nobody else tells them.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.normalise.otlp.product import MetricFamily

_MODEL = ("model_name", "model_id")


def served(prefix: str, token_types: Mapping[str, str]) -> dict[str, MetricFamily]:
    """
    Families of a server's counters by the names that follow its prefix.

    Prometheus ends counters in `_total` and SDKs of OpenTelemetry do not; some scrapers replace the colon.
    """
    families: dict[str, MetricFamily] = {}
    for name, token_type in token_types.items():
        family = MetricFamily(token_type=token_type, model=_MODEL, repeats_calls=True, is_served=True)
        for beginning in {prefix, prefix.replace(":", "_")}:
            families |= {f"{beginning}{name}": family, f"{beginning}{name}_total": family}
    return families
