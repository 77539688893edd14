"""
The columns of the FOCUS dataset Cost and Usage by version. The columns of 1.2 (2025-05), 1.3 (2025-12) and
the working draft of 1.5 come from the specification's tables. The columns of 1.4 (2026-06) are 1.3 with the
changes that the FinOps toolkit's plan for 1.4 cites.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Column(NamedTuple):
    """`is_mandatory`: each file has the column. `may_be_null`: a row may leave it empty."""

    is_mandatory: bool
    may_be_null: bool


MANDATORY, FILLED, MAY, MAY_FILLED = (
    Column(True, True),
    Column(True, False),
    Column(False, True),
    Column(False, False),
)

_OF_1_2: Mapping[str, Column] = {
    "AvailabilityZone": MAY, "BilledCost": FILLED, "BillingAccountId": FILLED, "BillingAccountName": MANDATORY,
    "BillingAccountType": MAY_FILLED, "BillingCurrency": FILLED, "BillingPeriodEnd": FILLED,
    "BillingPeriodStart": FILLED, "CapacityReservationId": MAY, "CapacityReservationStatus": MAY,
    "ChargeCategory": FILLED, "ChargeClass": MANDATORY, "ChargeDescription": MANDATORY, "ChargeFrequency": MAY_FILLED,
    "ChargePeriodEnd": FILLED, "ChargePeriodStart": FILLED, "CommitmentDiscountCategory": MAY,
    "CommitmentDiscountId": MAY, "CommitmentDiscountName": MAY, "CommitmentDiscountQuantity": MAY,
    "CommitmentDiscountStatus": MAY, "CommitmentDiscountType": MAY, "CommitmentDiscountUnit": MAY,
    "ConsumedQuantity": MAY, "ConsumedUnit": MAY, "ContractedCost": FILLED, "ContractedUnitPrice": MAY,
    "EffectiveCost": FILLED, "InvoiceId": MAY, "InvoiceIssuerName": FILLED, "ListCost": FILLED, "ListUnitPrice": MAY,
    "PricingCategory": MAY, "PricingCurrency": MAY, "PricingCurrencyContractedUnitPrice": MAY,
    "PricingCurrencyEffectiveCost": MAY, "PricingCurrencyListUnitPrice": MAY, "PricingQuantity": MANDATORY,
    "PricingUnit": MANDATORY, "ProviderName": FILLED, "PublisherName": FILLED, "RegionId": MAY, "RegionName": MAY,
    "ResourceId": MAY, "ResourceName": MAY, "ResourceType": MAY, "ServiceCategory": FILLED, "ServiceName": FILLED,
    "ServiceSubcategory": MAY_FILLED, "SkuId": MAY, "SkuMeter": MAY, "SkuPriceDetails": MAY, "SkuPriceId": MAY,
    "SubAccountId": MAY, "SubAccountName": MAY, "SubAccountType": MAY, "Tags": MAY,
}  # fmt: skip
_SINCE_1_3: Mapping[str, Column] = {
    "AllocatedMethodDetails": MAY, "AllocatedMethodId": MAY, "AllocatedResourceId": MAY, "AllocatedResourceName": MAY,
    "AllocatedTags": MAY, "ContractApplied": MAY, "HostProviderName": MANDATORY, "ServiceProviderName": FILLED,
}  # fmt: skip
_SINCE_1_4: Mapping[str, Column] = {
    "CommitmentProgramEligibilityDetails": MAY, "InvoiceDetailId": MAY,
    "PricingCurrency": MAY_FILLED, "PricingCurrencyEffectiveCost": MAY_FILLED,
}  # fmt: skip
_UNTIL_1_3 = ("ProviderName", "PublisherName")
_SINCE_1_5: Mapping[str, Column] = {
    "CredentialDetails": MAY, "CredentialId": MAY, "HostProviderName": FILLED, "PrincipalId": MAY,
}  # fmt: skip

_of_1_3 = {**_OF_1_2, **_SINCE_1_3}
_of_1_4 = {name: column for name, column in {**_of_1_3, **_SINCE_1_4}.items() if name not in _UNTIL_1_3}
PUBLISHED: Mapping[str, Mapping[str, Column]] = {
    "1.2": _OF_1_2,
    "1.3": _of_1_3,
    "1.4": _of_1_4,
    "1.5": {**_of_1_4, **_SINCE_1_5},
}
