"""What is made from the sums of days: prices, comparisons with provider bills, rollups and cached results."""
