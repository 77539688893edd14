-- Rollups of billed money (spool/ledger/days/rollups.py), which came with the ninth version: made of its rows in the
-- background, and marked in `rolled`.
CREATE TABLE billed_rollups (
    rollup INTEGER NOT NULL,
    width INTEGER NOT NULL,
    start INTEGER NOT NULL,
    key INTEGER NOT NULL,
    charge TEXT NOT NULL,
    basis TEXT NOT NULL,
    arranged INTEGER NOT NULL,
    high INTEGER NOT NULL,
    middle INTEGER NOT NULL,
    low INTEGER NOT NULL,
    PRIMARY KEY (rollup, width, start, key, charge, basis, arranged)
) STRICT, WITHOUT ROWID;
-- Rows of a day are found by their set of dimensions before their provider, as a filter asks for them.
ALTER TABLE billed RENAME TO billed_before;
CREATE TABLE billed (
    start INTEGER NOT NULL,
    provider TEXT NOT NULL,
    key INTEGER NOT NULL,
    charge TEXT NOT NULL,
    basis TEXT NOT NULL,
    arranged INTEGER NOT NULL,
    high INTEGER NOT NULL,
    middle INTEGER NOT NULL,
    low INTEGER NOT NULL,
    PRIMARY KEY (start, key, provider, charge, basis, arranged)
) STRICT, WITHOUT ROWID;
INSERT INTO billed SELECT * FROM billed_before ORDER BY start, key;
DROP TABLE billed_before;
