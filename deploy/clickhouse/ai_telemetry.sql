CREATE TABLE ai_telemetry (
  `edition` LowCardinality(String),
  `number` Int64,
  `at` DateTime64(6, 'UTC'),
  `committed_at` DateTime64(6, 'UTC'),
  `kind` LowCardinality(String),
  `counted` Bool,
  `calls` Int64,
  `spend` Nullable(Decimal(38, 27)),
  `id` String,
  `request_id` String,
  `trace_id` String,
  `span_id` String,
  `start_time` Nullable(DateTime64(6, 'UTC')),
  `end_time` Nullable(DateTime64(6, 'UTC')),
  `provider` LowCardinality(String),
  `operation` LowCardinality(String),
  `request_model` LowCardinality(String),
  `response_model` LowCardinality(String),
  `region` LowCardinality(String),
  `status` LowCardinality(String),
  `error_type` LowCardinality(String),
  `cost_source` LowCardinality(String),
  `price_book` LowCardinality(String),
  `source` LowCardinality(String),
  `input_tokens` Nullable(Int64),
  `output_tokens` Nullable(Int64),
  `cache_read_tokens` Nullable(Int64),
  `cache_write_tokens` Nullable(Int64),
  `cache_write_1h_tokens` Nullable(Int64),
  `reasoning_tokens` Nullable(Int64),
  `cost` Nullable(Decimal(38, 27)),
  `estimated_cost` Nullable(Decimal(38, 27)),
  `user` String,
  `team` String,
  `session` String,
  `api_key` String,
  `device` String,
  `tags` Map(LowCardinality(String), String),
  `shadow` Bool,
  `name` LowCardinality(String),
  `model` LowCardinality(String),
  `token_type` LowCardinality(String),
  `value` Nullable(Int64),
  `value_money` Nullable(Decimal(38, 27)),
  `unit` LowCardinality(String),
  `meters` Map(LowCardinality(String), Decimal(38, 6)),
  `corrects` String,
  `reason` LowCardinality(String),
  `known_at` Nullable(DateTime64(6, 'UTC')),
  `run` String,
  `parent_run` String,
  `ancestors` String,
  `charges` Map(LowCardinality(String), String),
  `counted_by` String,
  INDEX by_number number TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(at) ORDER BY (toDate(at), id)
SETTINGS non_replicated_deduplication_window = 10000;
-- Each id once.
CREATE VIEW ai_telemetry_once AS SELECT * FROM ai_telemetry ORDER BY number, edition LIMIT 1 BY id;
-- Rows that count: their sums equal the reports.
CREATE VIEW ai_telemetry_spend AS SELECT *, toDecimal64(spend, 6) AS usd FROM ai_telemetry_once WHERE counted;
-- One row per call, with its spend after corrections and the number of corrections. A call that a correction
-- took back has no row, because another row is the same call.
CREATE VIEW ai_telemetry_calls AS SELECT c.*, c.spend + ifNull(k.spend, 0) AS spend_now, ifNull(k.n, 0) AS corrections
FROM ai_telemetry_once AS c LEFT JOIN
  (SELECT corrects, sum(spend) AS spend, sum(calls) AS n_calls, count() AS n FROM ai_telemetry_once WHERE kind = 'correction'
   GROUP BY corrects) AS k
  ON k.corrects = c.id WHERE c.kind = 'inference' AND ifNull(k.n_calls, 0) >= 0;
