CREATE OR REPLACE VIEW lake AS SELECT * FROM {rows};
-- Each id once: after a restore or an import alone.
CREATE OR REPLACE VIEW once AS SELECT * FROM lake
QUALIFY row_number() OVER (PARTITION BY id ORDER BY number NULLS LAST, edition) = 1;
-- What the ledger counts: the sums are those of the reports.
CREATE OR REPLACE VIEW spend AS SELECT *, spend::DECIMAL(18,6) AS usd FROM lake WHERE counted;
-- A row a call, with what corrections changed of its spend, and how many there are.
CREATE OR REPLACE VIEW calls AS
SELECT c.* REPLACE (
         CASE WHEN k.corrections IS NULL THEN c.spend ELSE coalesce(c.spend, 0) + coalesce(k.spend, 0) END AS spend
       ),
       coalesce(k.corrections, 0) AS corrections
  FROM once c
  LEFT JOIN (
         SELECT corrects, sum(spend) AS spend, count(*) AS corrections
           FROM once WHERE kind = 'correction' GROUP BY corrects
       ) k ON k.corrects = c.id
 WHERE c.kind = 'inference';
-- By the day of the call in UTC, corrections with the call that they change.
CREATE OR REPLACE VIEW daily AS
SELECT ("at" AT TIME ZONE 'UTC')::DATE AS day, sum(calls) AS calls, sum(spend) AS spend,
       sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens
  FROM spend GROUP BY day;
CREATE OR REPLACE VIEW by_owner AS
SELECT ("at" AT TIME ZONE 'UTC')::DATE AS day, team, "user", api_key, sum(calls) AS calls, sum(spend) AS spend
  FROM spend GROUP BY ALL;
-- What became known on a later day than that of the call.
CREATE OR REPLACE VIEW late AS
SELECT *, (coalesce(known_at, committed_at) AT TIME ZONE 'UTC')::DATE AS known_on
  FROM spend WHERE known_on > ("at" AT TIME ZONE 'UTC')::DATE;
