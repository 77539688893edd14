"""
All checks for causes, in the order in which they run. Each check sees only the difference that earlier checks
have left unclaimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gateway.bills.reconciliation.causes import (
    contexts,
    contracts,
    double_reports,
    exchanged_tiers,
    exchanges,
    missing,
    month,
    one_side,
    other_lines,
    rates,
    regions,
    shifted_days,
    silence,
    tiers,
    unpaid,
    uplifts,
)
from gateway.bills.reconciliation.claims import (
    KINDS,
    OF_KINDS,
    OF_PRICES,
    OTHERS,
    PRICES,
    BillComparison,
    CauseClaim,
)
from gateway.bills.reconciliation.limits import COARSEST
from gateway.bills.reconciliation.wording import underscores_to_spaces

ANY_PRICE = "another_price"  # stands for a price difference whose cause is unknown
Test = Callable[[BillComparison], Iterator[CauseClaim]]

TESTS: Sequence[Test] = (
    other_lines.claim_failed_calls,
    exchanges.claim_tokens_billed_under_other_model,
    contracts.claim_committed_capacity_lines,
    contracts.claim_credits_and_fees,
    contracts.claim_unbilled_contract_amounts,
    unpaid.claim_commitment,
    one_side.claim_unreported_traffic,
    one_side.claim_other_account,
    silence.claim_no_telemetry,
    silence.claim_no_bill,
    double_reports.claim_keys_counted_twice,
    double_reports.claim_cached_input_counted_twice,
    silence.claim_days_billed_repeatedly,
    exchanged_tiers.claim_tokens_billed_in_other_tier,
    contexts.claim_context_window_moves,
    exchanged_tiers.claim_different_division_into_cached_tokens,
    exchanges.claim_missing_output,
    shifted_days.claim_shifted_times,
    silence.claim_silent_hours,
    double_reports.claim_double_reports,
    missing.claim_missing_usage,
    missing.claim_unreported_batch_calls,
    missing.claim_unreported_calls,
    silence.claim_next_bill,
    rates.claim_reported_costs,
    other_lines.claim_amounts_rounded_up,
    tiers.claim_price_of_tier_missing_in_price_list,
    contexts.claim_missing_large_input_surcharge,
    unpaid.claim_daily_free_tokens,
    contexts.claim_large_input_price,
    rates.claim_missing_discount,
    regions.claim_regional_price,
    uplifts.claim_fee,
    uplifts.claim_key_price,
    rates.claim_price_differences,
    other_lines.claim_non_token_lines,
    other_lines.claim_calls_without_cost,
    other_lines.claim_own_prices,
    other_lines.claim_rounding,
)


_NO_CAUSE = frozenset({"rounding", "own_price"})


def find_claims(comparison: BillComparison) -> list[CauseClaim]:
    """
    Return the claims, largest first, each with the causes that would explain the same amounts.

    `name_alternative_causes_in_evidence` adds these causes to the evidence.
    """
    found = [
        silence.name_next_bill_as_other_cause(claim, comparison)
        for test in TESTS
        for claim in test(comparison)
    ]
    named_claims = [_resolve_alternative_cause_placeholders(claim, found, comparison) for claim in found]
    tested = (
        contracts.turn_price_into_hint_if_contract_fee(claim, comparison)
        for claim in month.turn_contradicted_claims_into_hints(named_claims, comparison)
    )
    return sorted(tested, key=lambda item: (-item.moved, -abs(item.tokens), item.cause))


def _resolve_alternative_cause_placeholders(
    claim: CauseClaim, all_claims: Sequence[CauseClaim], comparison: BillComparison
) -> CauseClaim:
    names: list[str] = []
    for cause_name in claim.beside:
        if cause_name in (OTHERS, KINDS):
            overlapping = [
                other_claim.cause
                for other_claim in all_claims
                if other_claim.moved >= COARSEST and _are_claims_on_same_day_and_model(claim, other_claim)
            ]
            names += [cause for cause in overlapping if cause_name == OTHERS or cause in OF_KINDS]
        elif cause_name == PRICES:
            names += _causes_of_price_differences_in_models(claim, all_claims, comparison)
        else:
            names.append(cause_name)
    return replace(claim, beside=tuple(sorted(set(names) - {claim.cause} - _NO_CAUSE)))


def name_alternative_causes_in_evidence(claim: CauseClaim) -> CauseClaim:
    if not claim.beside:
        return claim
    beside = tuple(sorted(set(claim.beside) - {claim.cause}))
    cause_text = " and ".join(map(underscores_to_spaces, (claim.cause, *beside)))
    return replace(
        claim, beside=beside, evidence=f"{claim.evidence}; {cause_text} cannot be distinguished here"
    )


def _causes_of_price_differences_in_models(
    claim: CauseClaim, all_claims: Sequence[CauseClaim], comparison: BillComparison
) -> list[str]:
    """
    Return the causes of price differences of the same models, or ANY_PRICE if none is claimed.

    If calls were counted at other prices than the list price, claims of other models count as well. For
    models without a counted call, return nothing, because everything billed for them is due to unreported
    calls.
    """
    models = {cell.model for cell in claim.by_cell} & {cell.model for cell in comparison.split.counted}
    if not models:
        return []
    priced = [
        other_claim
        for other_claim in all_claims
        if other_claim.cause in OF_PRICES and other_claim.moved >= COARSEST
    ]
    names = [
        other_claim.cause
        for other_claim in priced
        if any(cell.model in models for cell in other_claim.by_cell)
    ]
    if names or not models & comparison.split.varying:
        return names or [ANY_PRICE]
    # missing tokens of a model may hide a price difference that was claimed for other models
    of_calls = [
        other_claim.cause
        for other_claim in all_claims
        if other_claim.moved >= COARSEST and _are_claims_on_same_day_and_model(claim, other_claim)
    ]
    return [*of_calls, *(other_claim.cause for other_claim in priced)]


def _are_claims_on_same_day_and_model(claim: CauseClaim, other_claim: CauseClaim) -> bool:
    places = {(cell.day, cell.model) for cell in claim.by_cell}
    return other_claim.is_of_tokens and any((cell.day, cell.model) in places for cell in other_claim.by_cell)
