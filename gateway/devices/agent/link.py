"""
The files with which the agent and the probe inform each other, in the agent's data directory.

The probe stores the states of assistants, and the agent how it reaches the gateway. Neither trusts the other's file.
"""

from __future__ import annotations

from typing import Final

STATES_FILE: Final = "states.json"
LINK_FILE: Final = "link.json"
SOURCES_FILE: Final = "sources.json"
