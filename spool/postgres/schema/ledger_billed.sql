-- Billed money by day and set of dimensions, in three limbs of nine decimals; it is made of statements and sums. Nodes of
-- the release before leave it as it is.
CREATE TABLE {schema}.ledger_billed (
    start bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    key bigint NOT NULL,
    charge text COLLATE "C" NOT NULL,
    basis text COLLATE "C" NOT NULL,
    arranged bigint NOT NULL,
    high bigint NOT NULL,
    middle bigint NOT NULL,
    low bigint NOT NULL,
    PRIMARY KEY (start, provider, key, charge, basis, arranged)
);
CREATE INDEX ledger_billed_by_key ON {schema}.ledger_billed (key);

CREATE TABLE {schema}.ledger_billed_days (
    start bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    mark text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    read_at float8 NOT NULL,
    made_at float8 NOT NULL,
    revision bigint NOT NULL,
    told text COLLATE "C" NOT NULL,
    PRIMARY KEY (start, provider)
);
