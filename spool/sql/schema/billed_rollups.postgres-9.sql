-- Rollups of billed money (spool/ledger/days/rollups.py): made of its rows in the background, and marked in `ledger_rolled`.
CREATE TABLE {schema}.ledger_billed_rollups (
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
