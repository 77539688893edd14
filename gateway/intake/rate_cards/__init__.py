"""Dated rate cards, the published prices of models, as files: `card` reads them, `convert` makes them."""
