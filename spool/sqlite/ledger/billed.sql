-- Billed money, which came with the sixth version of the file.
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
    PRIMARY KEY (start, provider, key, charge, basis, arranged)
) STRICT, WITHOUT ROWID;
CREATE TABLE billed_days (
    start INTEGER NOT NULL,
    provider TEXT NOT NULL,
    state TEXT NOT NULL,
    mark TEXT NOT NULL,
    source TEXT NOT NULL,
    read_at REAL NOT NULL,
    made_at REAL NOT NULL,
    revision INTEGER NOT NULL,
    told TEXT NOT NULL,
    PRIMARY KEY (start, provider)
) STRICT, WITHOUT ROWID;
