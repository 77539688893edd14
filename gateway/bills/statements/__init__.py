"""Reports of providers on what they billed: how each is recognised and read, imported and pulled."""
