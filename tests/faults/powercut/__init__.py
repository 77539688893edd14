"""Power cuts: a process runs under a recorder of its writes, and what a cut would leave of them is opened again."""
