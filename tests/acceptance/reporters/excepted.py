"""
Sets of reporters whose reports have no fact in common, so that their calls count more than once.
`docs/promises/ordering.md` names them under "Reports that nothing joins". A test fails if a set of this list counts
its calls once.
"""

from __future__ import annotations

_ONLY_RESPONSE_ID = "one report states only the id of the response, the other only the id of the request"
_NO_ID = "the framework states no id, and without the SDK's span nothing connects its span with the others"
_REMOVED_HEADER = "LiteLLM removes the id of the request from a failure, so its caller states none"
_NO_HEADER = "Envoy's access log has the provider's id only if its operator adds the header"

EXCEPTED = {
    "Fi+E": _ONLY_RESPONSE_ID,
    "Fi+A": _ONLY_RESPONSE_ID,
    "Fi+E+A": _ONLY_RESPONSE_ID,
    "Fi+G+E": _ONLY_RESPONSE_ID,
    "G+E, not translated by LiteLLM": _ONLY_RESPONSE_ID,
    "P+Fn": _NO_ID,
    "Fn+G": _NO_ID,
    "Fn+A": _NO_ID,
    "failed S+G, the caller sees no request id": _REMOVED_HEADER,
    "failed P+S+G, the caller sees no request id": _REMOVED_HEADER,
    "P+E, Envoy does not log the header": _NO_HEADER,
    "S+E, Envoy does not log the header": _NO_HEADER,
    "P, its model runs apart": "a run that arrives apart may also be a call of a session",
}
