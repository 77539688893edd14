"""Property tests without time limits: on a shared machine a slow example is no wrong one."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("tollhouse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tollhouse")
