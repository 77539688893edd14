"""The sums of a day, as they are asked for: what can be priced, and what a provider bills."""
