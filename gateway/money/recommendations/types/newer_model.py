"""
Recommendation of a newer model of the same family and tier that costs less for input and output, with the
cost at its prices.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gateway.money.recommendations.facts import DailyUse, Opportunity, SavingFacts
from gateway.money.recommendations.repricing import format_exact_dollars, programs_cheaper_with
from spool.ledger.token_sums import TokenSum
from spool.record import NS
from spool.registry.insights import LOW
from spool.registry.recommendations import EXACT, Processing

NAME = "newer_model"
TITLE = "The newer model of the same tier"
FORMULA = "cost at the model's prices - cost of the same tokens at the newer model's current prices"
CONFIDENCE = EXACT
EFFORT = LOW
ASSUMPTIONS = (
    "The newer model needs the same number of tokens. Its tokenizer and its amount of reasoning may differ.",
    "The newer model does the work equally well. Try it on a part of the calls.",
)
_SAMPLE = 1_000_000  # number of tokens for which the prices of two models are compared


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    followers: dict[tuple[str, str, str], str | None] = {}

    def newer_model_of(use: DailyUse) -> str | None:
        key = (use.dimensions.provider or "", use.dimensions.model or "", use.tokens.mode)
        if key not in followers:
            followers[key] = newest_cheaper_successor(saving_facts, use)
        return followers[key]

    def tokens_as_newer_model(use: DailyUse) -> TokenSum | None:
        model = newer_model_of(use)
        return None if model is None else _tokens_as_model(saving_facts, use.tokens, model)

    for work, priced in programs_cheaper_with(saving_facts, tokens_as_newer_model):
        model = newer_model_of(priced.uses[-1])
        yield Opportunity(
            subject=work,
            work=work,
            claims=priced.claims,
            title=f"{model} for {work.name} instead of {work.model}",
            seen=(
                f"{priced.call_count:,} calls of {work.name} used {work.model}. {model} is newer, belongs to "
                "the same tier, and costs less for input and output."
            ),
            advice=f"Try {model} on a part of this work. Switch over when the responses are equally good.",
            formula=(
                f"{format_exact_dollars(priced.cost)} with {work.model} - "
                f"{format_exact_dollars(priced.cost - priced.total_saving)} with {model}"
            ),
            current=work.processing_with_mode(),
            recommended=Processing(model=model, provider=work.provider),
            measured_by=work.measured_by,
        )


def newest_cheaper_successor(saving_facts: SavingFacts, use: DailyUse) -> str | None:
    """
    Return the newest successor of a use's model that costs less for some kind of token and no more for
    any other kind.
    """
    input_sample = replace(
        use.tokens,
        calls=0,
        beyond=0,
        input_tokens=_SAMPLE,
        output_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cache_write_1h_tokens=0,
        reasoning_tokens=0,
    )
    output_sample = replace(input_sample, input_tokens=0, output_tokens=_SAMPLE)
    now = [saving_facts.estimate(sample) for sample in (input_sample, output_sample)]
    for model in saving_facts.newer(use.dimensions.model or ""):
        then = [
            saving_facts.estimate(_tokens_as_model(saving_facts, sample, model))
            for sample in (input_sample, output_sample)
        ]
        pairs = list(zip(now, then, strict=True))
        if any(old is None or new is None or new > old for old, new in pairs):
            continue
        if then != now:
            return model
    return None


def _tokens_as_model(saving_facts: SavingFacts, tokens: TokenSum, model: str) -> TokenSum:
    return replace(tokens, response_model=model, request_model=model, time=int(saving_facts.now) * NS)
