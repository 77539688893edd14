"""
Recommendation of the global model name for models called in one region, with the cost of the same tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from gateway.money.recommendations.facts import DailyUse, Opportunity, SavingFacts
from gateway.money.recommendations.repricing import format_exact_dollars, programs_cheaper_with
from spool.ledger.token_sums import TokenSum
from spool.registry.insights import MEDIUM
from spool.registry.recommendations import EXACT, Processing

NAME = "regional_surcharge"
TITLE = "The global model instead of a regional one"
FORMULA = "cost at the region's prices - cost of the same tokens at the prices of the global model"
CONFIDENCE = EXACT
EFFORT = MEDIUM
ASSUMPTIONS = ("The data may leave the region. Ask the people responsible for compliance first.",)

# Matches `us.anthropic.claude-...`, which is the inference profile of a region, and `anthropic.claude-...`,
# which is the model in one region.
_REGIONAL = re.compile(
    r"(?:(?!global\.)[a-z]{2,6}(?:-gov)?\.)?(?P<model>(?:anthropic|openai|amazon)\.[a-z].*)"
)


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    for work, repricing in programs_cheaper_with(saving_facts, _tokens_with_global_region_model):
        name = global_model_name(work.model) or ""
        yield Opportunity(
            subject=work,
            work=work,
            claims=repricing.claims,
            title=f"{name} for {work.name} instead of {work.model}",
            seen=(
                f"{repricing.call_count:,} calls of {work.name} requested {work.model}, which costs more because "
                "it is regional."
            ),
            advice=f"Request {name} where the data may be processed in any region.",
            formula=(
                f"{format_exact_dollars(repricing.cost)} in the region - "
                f"{format_exact_dollars(repricing.cost - repricing.total_saving)} globally"
            ),
            current=work.processing_with_mode(),
            recommended=Processing(model=name, provider=work.provider),
            measured_by=work.measured_by,
        )


def global_model_name(model: str) -> str | None:
    regional = _REGIONAL.fullmatch(model)
    return None if regional is None or model.startswith("global.") else f"global.{regional['model']}"


def _tokens_with_global_region_model(use: DailyUse) -> TokenSum | None:
    name = global_model_name(use.dimensions.model or "")
    return None if name is None else replace(use.tokens, response_model=name, request_model=name)
