CREATE OR REPLACE VIEW lake AS SELECT * FROM {rows};
-- Each id once: after a restore or an import alone.
CREATE OR REPLACE VIEW once AS SELECT * FROM lake
QUALIFY row_number() OVER (PARTITION BY id ORDER BY number NULLS LAST, edition) = 1;
-- What the ledger counts: the sums are those of the reports.
CREATE OR REPLACE VIEW spend AS SELECT *, spend::DECIMAL(18,6) AS usd FROM lake WHERE counted;
