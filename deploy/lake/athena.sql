CREATE EXTERNAL TABLE lake (
  `edition` string,
  `number` bigint,
  `at` timestamp,
  `committed_at` timestamp,
  `kind` string,
  `counted` boolean,
  `calls` bigint,
  `spend` decimal(38,27),
  `id` string,
  `request_id` string,
  `trace_id` string,
  `span_id` string,
  `start_time` timestamp,
  `end_time` timestamp,
  `provider` string,
  `operation` string,
  `request_model` string,
  `response_model` string,
  `region` string,
  `status` string,
  `error_type` string,
  `cost_source` string,
  `price_book` string,
  `source` string,
  `input_tokens` bigint,
  `output_tokens` bigint,
  `cache_read_tokens` bigint,
  `cache_write_tokens` bigint,
  `cache_write_1h_tokens` bigint,
  `reasoning_tokens` bigint,
  `cost` decimal(38,27),
  `estimated_cost` decimal(38,27),
  `user` string,
  `team` string,
  `session` string,
  `api_key` string,
  `device` string,
  `tags` map<string,string>,
  `shadow` boolean,
  `name` string,
  `model` string,
  `token_type` string,
  `value` bigint,
  `value_money` decimal(38,27),
  `unit` string,
  `meters` map<string,decimal(38,6)>,
  `corrects` string,
  `reason` string,
  `known_at` timestamp,
  `run` string,
  `parent_run` string,
  `ancestors` string,
  `charges` map<string,string>,
  `counted_by` string
)
PARTITIONED BY (`date` string)
STORED AS PARQUET
LOCATION 's3://acme-costs/tollhouse/ai_telemetry/v1/'
TBLPROPERTIES (
  'projection.enabled' = 'true', 'projection.date.type' = 'date', 'projection.date.format' = 'yyyy-MM-dd',
  'projection.date.range' = '2020-01-01,NOW+1DAYS', 'storage.location.template' = 's3://acme-costs/tollhouse/ai_telemetry/v1/date=${date}/'
);
-- Each id once, which matters only after a restore or an import.
CREATE OR REPLACE VIEW once AS
SELECT "edition", "number", "at", "committed_at", "kind", "counted", "calls", "spend", "id", "request_id", "trace_id", "span_id", "start_time", "end_time", "provider", "operation", "request_model", "response_model", "region", "status", "error_type", "cost_source", "price_book", "source", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens", "cost", "estimated_cost", "user", "team", "session", "api_key", "device", "tags", "shadow", "name", "model", "token_type", "value", "value_money", "unit", "meters", "corrects", "reason", "known_at", "run", "parent_run", "ancestors", "charges", "counted_by", "date"
  FROM (
         SELECT "edition", "number", "at", "committed_at", "kind", "counted", "calls", "spend", "id", "request_id", "trace_id", "span_id", "start_time", "end_time", "provider", "operation", "request_model", "response_model", "region", "status", "error_type", "cost_source", "price_book", "source", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens", "cost", "estimated_cost", "user", "team", "session", "api_key", "device", "tags", "shadow", "name", "model", "token_type", "value", "value_money", "unit", "meters", "corrects", "reason", "known_at", "run", "parent_run", "ancestors", "charges", "counted_by", "date", row_number() OVER (
                  PARTITION BY "id" ORDER BY CASE WHEN "number" IS NULL THEN 1 ELSE 0 END, "number", "edition"
                ) AS place
           FROM lake
       ) r
 WHERE place = 1;
-- Rows that count: their sums equal the reports.
CREATE OR REPLACE VIEW spend AS
SELECT "edition", "number", "at", "committed_at", "kind", "counted", "calls", "spend", "id", "request_id", "trace_id", "span_id", "start_time", "end_time", "provider", "operation", "request_model", "response_model", "region", "status", "error_type", "cost_source", "price_book", "source", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens", "cost", "estimated_cost", "user", "team", "session", "api_key", "device", "tags", "shadow", "name", "model", "token_type", "value", "value_money", "unit", "meters", "corrects", "reason", "known_at", "run", "parent_run", "ancestors", "charges", "counted_by", "date", CAST("spend" AS DECIMAL(18, 6)) AS usd FROM lake WHERE "counted";
-- One row per call, with its spend after corrections and the number of corrections. A call that a correction took
-- back has no row, because another row is the same call.
CREATE OR REPLACE VIEW calls AS
SELECT c."edition", c."number", c."at", c."committed_at", c."kind", c."counted", c."calls", CASE WHEN k.corrections IS NULL THEN c."spend" ELSE coalesce(c."spend", 0) + coalesce(k.changed, 0) END AS "spend", c."id", c."request_id", c."trace_id", c."span_id", c."start_time", c."end_time", c."provider", c."operation", c."request_model", c."response_model", c."region", c."status", c."error_type", c."cost_source", c."price_book", c."source", c."input_tokens", c."output_tokens", c."cache_read_tokens", c."cache_write_tokens", c."cache_write_1h_tokens", c."reasoning_tokens", c."cost", c."estimated_cost", c."user", c."team", c."session", c."api_key", c."device", c."tags", c."shadow", c."name", c."model", c."token_type", c."value", c."value_money", c."unit", c."meters", c."corrects", c."reason", c."known_at", c."run", c."parent_run", c."ancestors", c."charges", c."counted_by", c."date",
       coalesce(k.corrections, 0) AS corrections
  FROM once c
  LEFT JOIN (
         SELECT "corrects" AS corrected, sum("spend") AS changed, count(*) AS corrections,
                sum("calls") AS changed_calls
           FROM once WHERE "kind" = 'correction' GROUP BY "corrects"
       ) k ON k.corrected = c."id"
 WHERE c."kind" = 'inference' AND coalesce(k.changed_calls, 0) >= 0;
-- Sums by the day of the call in UTC. A correction belongs to the day of the call that it changes.
CREATE OR REPLACE VIEW daily AS
SELECT CAST("at" AS DATE) AS day, sum("calls") AS calls, sum("spend") AS spend,
       sum("input_tokens") AS input_tokens, sum("output_tokens") AS output_tokens
  FROM spend GROUP BY CAST("at" AS DATE);
CREATE OR REPLACE VIEW by_owner AS
SELECT CAST("at" AS DATE) AS day, "team", "user", "api_key", sum("calls") AS calls, sum("spend") AS spend
  FROM spend GROUP BY CAST("at" AS DATE), "team", "user", "api_key";
-- Rows that became known on a later day than the day of the call.
CREATE OR REPLACE VIEW late AS
SELECT "edition", "number", "at", "committed_at", "kind", "counted", "calls", "spend", "id", "request_id", "trace_id", "span_id", "start_time", "end_time", "provider", "operation", "request_model", "response_model", "region", "status", "error_type", "cost_source", "price_book", "source", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens", "cost", "estimated_cost", "user", "team", "session", "api_key", "device", "tags", "shadow", "name", "model", "token_type", "value", "value_money", "unit", "meters", "corrects", "reason", "known_at", "run", "parent_run", "ancestors", "charges", "counted_by", "date", usd, CAST(coalesce("known_at", "committed_at") AS DATE) AS known_on
  FROM spend WHERE CAST(coalesce("known_at", "committed_at") AS DATE) > CAST("at" AS DATE);
-- Sums by hour, with column names of FOCUS.
CREATE OR REPLACE VIEW focus AS
SELECT date_trunc('hour', "at") AS ChargePeriodStart, 'Usage' AS ChargeCategory, 'AI and Machine Learning' AS ServiceCategory,
       "provider" AS ServiceProviderName, coalesce("response_model", "request_model", "model") AS ResourceId,
       "region" AS RegionId, "team" AS SubAccountId, 'USD' AS BillingCurrency, sum("spend") AS BilledCost,
       sum("calls") AS x_Calls, sum("input_tokens") AS x_InputTokens, sum("output_tokens") AS x_OutputTokens,
       "cost_source" AS x_CostSource
  FROM spend
 GROUP BY date_trunc('hour', "at"), "provider", coalesce("response_model", "request_model", "model"), "region", "team",
          "cost_source";
