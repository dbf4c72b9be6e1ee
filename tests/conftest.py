"""Settings of all tests: a busy machine fails none of them, and nothing but the test says how wide a terminal is."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
os.environ["COLUMNS"] = "100"  # as without a terminal; runners of several processes set another width
