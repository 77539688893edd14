"""
Limits of the checks: all numbers that decide what is chance, what is rounding, and what is a pattern. Pure.

No limit makes an amount: an amount is an identity, and these numbers only decide whether a check applies.
"""

from __future__ import annotations

from decimal import Decimal

from spool.money import UNIT

# Days.
LEAST_DAYS = 3  # days; a relation between two series on fewer days may be chance
LASTING_DAYS = 5  # days; an inexact exchange of tokens on fewer days may be chance
OWNER_DAYS = 7  # days; a suggested owner of a key must fit for a week, with a weekend
DAYS_OF_RATES = 62  # days before a month; a provider may use a rate of the two months before
# groups of days with equal price ratios; if there are more, prices differ by call and not by day
MOST_SETS = 4
QUARTER = 4  # at most or at least 1/QUARTER of all days: a few days may differ by another cause

# Hours.
FARTHEST = 14  # hours; the largest difference between two time zones
LEAST_HOURS = 5  # hours; fewer hours without a call occur by chance
LEAST_BESIDE = 7  # hours; replaces LEAST_HOURS if other days lack calls as well

# Calls and kinds of tokens.
LEAST_CALLS = 10  # calls on a day; with fewer calls, a multiple or a half occurs by chance
# calls of a day that the bill has on a later day; fewer may be calls near midnight, dated by another clock
LATE_CALLS = 4
LEAST_KINDS = 4  # kinds of tokens; with fewer kinds, all may lack half of a day by chance
MOST_AGAIN = 3  # maximum repeats of a bill's rows; more repeats have another cause

# Shares of tokens.
GAP = 0.01  # share of all tokens; late rows change the daily sums of both sides by less than this
ALIKE = 0.02  # share of the larger of two series; series that differ by less may be the same
# share of all tokens; after a shift of hours, more than this remains only if calls are missing
LACKING = 0.03
LARGE_SHARE = 0.1  # share of a day or of a difference; a larger rest needs a cause of its own
# share of the sum of the daily differences; if the month differs by more, tokens did not only move between days
CARRIED = 0.15
ROUGHLY = 0.2  # share of a mean, a difference or a day; a smaller part may be chance
# minimum share of days with an exchange of tokens in the usual direction; with a smaller share, it may be chance
NEARLY_ALL = 0.9

# Ratios of tokens.
# maximum ratio between the tokens of two names, or the shares of two kinds, that may mean the same
SAME_SIZE = 2.5
SIMILAR = 3  # maximum ratio between missing tokens and the tokens of the same hours on other days
FAR = 3  # multiple of a day's usual deviation; a larger deviation is no chance

# Prices.
SAME = Decimal("0.005")  # share of a price; ratios this close count as equal, because amounts are rounded
NOTHING = Decimal("0.0005")  # share of a price; a smaller difference over a month is rounding
# share of a price that counts as about half: 0.4 is half less a fifth, 0.55 half plus a fee of a tenth
NEAR_HALF = Decimal("0.4"), Decimal("0.55")
# a cache write for an hour costs more by this share of the price of a cache write
HOUR_WRITE = Decimal("0.6")
# surcharges for regions that price lists publish, as a share of the price
REGIONAL = (Decimal("0.1"), Decimal("0.25"))
MOST_APART = 6  # regions with their own price each; more would fit any difference
MOST_LISTED = 20  # models, keys or regions checked one by one, or listed in a claim

# Limits for the rounding of money.
COARSEST = UNIT // 100  # money units; bills do not round lines more coarsely than to a cent
MICRO = UNIT // 10**6  # money units; a bill may round a line to this before it applies a factor
FINEST = UNIT // 10**9  # money units; finer digits are noise of binary floating point
NOISE = UNIT // 10**15  # money units; conversion of currencies rounds below this
ROUNDING_SHARE = 10_000  # at most 1/ROUNDING_SHARE of a bill may be rounding
