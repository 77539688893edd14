"""Names of the token metrics of the GenAI conventions. The intake reads them without the OTLP decoders."""

from __future__ import annotations

TOKEN_USAGE = "gen_ai.client.token.usage"
# prefix of the counters in the 2026 conventions, which replace the histogram
USAGE = "gen_ai.client.inference.usage."
# prefix of the histograms by call that are sent in addition to these counters
OPERATION = "gen_ai.client.inference.operation."
# prefix of the counters in the draft of these conventions: tokens in total, input by cache, output by phase
DRAFT = "gen_ai.client.inference."
