CREATE TABLE {table} (
{columns},
  INDEX by_number number TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(at) ORDER BY (toDate(at), id)
SETTINGS non_replicated_deduplication_window = {window};
-- Each id once.
CREATE VIEW {table}_once AS SELECT * FROM {table} ORDER BY number, edition LIMIT 1 BY id;
-- Rows that count: their sums equal the reports.
CREATE VIEW {table}_spend AS SELECT *, toDecimal64(spend, 6) AS usd FROM {table}_once WHERE counted;
-- One row per call, with its spend after corrections and the number of corrections. A call that a correction
-- took back has no row, because another row is the same call.
CREATE VIEW {table}_calls AS SELECT c.*, c.spend + ifNull(k.spend, 0) AS spend_now, ifNull(k.n, 0) AS corrections
FROM {table}_once AS c LEFT JOIN
  (SELECT corrects, sum(spend) AS spend, sum(calls) AS n_calls, count() AS n FROM {table}_once WHERE kind = 'correction'
   GROUP BY corrects) AS k
  ON k.corrects = c.id WHERE c.kind = 'inference' AND ifNull(k.n_calls, 0) >= 0;
