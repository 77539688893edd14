CREATE OR REPLACE VIEW lake AS SELECT *, toDate(extract(_path, 'date=([0-9-]+)')) AS `date` FROM s3('https://acme-costs.s3.us-east-1.amazonaws.com/tollhouse/ai_telemetry/v1/*/*.parquet', 'Parquet', '`edition` Nullable(String), `number` Nullable(Int64), `at` Nullable(DateTime64(6, \'UTC\')), `committed_at` Nullable(DateTime64(6, \'UTC\')), `kind` Nullable(String), `counted` Nullable(Bool), `calls` Nullable(Int64), `spend` Nullable(Decimal(38, 27)), `id` Nullable(String), `request_id` Nullable(String), `trace_id` Nullable(String), `span_id` Nullable(String), `start_time` Nullable(DateTime64(6, \'UTC\')), `end_time` Nullable(DateTime64(6, \'UTC\')), `provider` Nullable(String), `operation` Nullable(String), `request_model` Nullable(String), `response_model` Nullable(String), `region` Nullable(String), `status` Nullable(String), `error_type` Nullable(String), `cost_source` Nullable(String), `price_book` Nullable(String), `source` Nullable(String), `input_tokens` Nullable(Int64), `output_tokens` Nullable(Int64), `cache_read_tokens` Nullable(Int64), `cache_write_tokens` Nullable(Int64), `cache_write_1h_tokens` Nullable(Int64), `reasoning_tokens` Nullable(Int64), `cost` Nullable(Decimal(38, 27)), `estimated_cost` Nullable(Decimal(38, 27)), `user` Nullable(String), `team` Nullable(String), `session` Nullable(String), `api_key` Nullable(String), `device` Nullable(String), `tags` Map(String, Nullable(String)), `shadow` Nullable(Bool), `name` Nullable(String), `model` Nullable(String), `token_type` Nullable(String), `value` Nullable(Int64), `value_money` Nullable(Decimal(38, 27)), `unit` Nullable(String), `meters` Map(String, Nullable(Decimal(38, 6))), `corrects` Nullable(String), `reason` Nullable(String), `known_at` Nullable(DateTime64(6, \'UTC\')), `run` Nullable(String), `parent_run` Nullable(String), `ancestors` Nullable(String), `charges` Map(String, Nullable(String)), `counted_by` Nullable(String)');
-- Each id once, which matters only after a restore or an import.
CREATE OR REPLACE VIEW once AS
SELECT `edition`, `number`, `at`, `committed_at`, `kind`, `counted`, `calls`, `spend`, `id`, `request_id`, `trace_id`, `span_id`, `start_time`, `end_time`, `provider`, `operation`, `request_model`, `response_model`, `region`, `status`, `error_type`, `cost_source`, `price_book`, `source`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `cache_write_1h_tokens`, `reasoning_tokens`, `cost`, `estimated_cost`, `user`, `team`, `session`, `api_key`, `device`, `tags`, `shadow`, `name`, `model`, `token_type`, `value`, `value_money`, `unit`, `meters`, `corrects`, `reason`, `known_at`, `run`, `parent_run`, `ancestors`, `charges`, `counted_by`, `date`
  FROM (
         SELECT `edition`, `number`, `at`, `committed_at`, `kind`, `counted`, `calls`, `spend`, `id`, `request_id`, `trace_id`, `span_id`, `start_time`, `end_time`, `provider`, `operation`, `request_model`, `response_model`, `region`, `status`, `error_type`, `cost_source`, `price_book`, `source`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `cache_write_1h_tokens`, `reasoning_tokens`, `cost`, `estimated_cost`, `user`, `team`, `session`, `api_key`, `device`, `tags`, `shadow`, `name`, `model`, `token_type`, `value`, `value_money`, `unit`, `meters`, `corrects`, `reason`, `known_at`, `run`, `parent_run`, `ancestors`, `charges`, `counted_by`, `date`, row_number() OVER (
                  PARTITION BY `id` ORDER BY CASE WHEN `number` IS NULL THEN 1 ELSE 0 END, `number`, `edition`
                ) AS place
           FROM lake
       ) r
 WHERE place = 1;
-- Rows that count: their sums equal the reports.
CREATE OR REPLACE VIEW spend AS
SELECT `edition`, `number`, `at`, `committed_at`, `kind`, `counted`, `calls`, `spend`, `id`, `request_id`, `trace_id`, `span_id`, `start_time`, `end_time`, `provider`, `operation`, `request_model`, `response_model`, `region`, `status`, `error_type`, `cost_source`, `price_book`, `source`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `cache_write_1h_tokens`, `reasoning_tokens`, `cost`, `estimated_cost`, `user`, `team`, `session`, `api_key`, `device`, `tags`, `shadow`, `name`, `model`, `token_type`, `value`, `value_money`, `unit`, `meters`, `corrects`, `reason`, `known_at`, `run`, `parent_run`, `ancestors`, `charges`, `counted_by`, `date`, CAST(`spend` AS Nullable(Decimal(18, 6))) AS usd FROM lake WHERE `counted`;
-- One row per call, with its spend after corrections and the number of corrections. A call that a correction took
-- back has no row, because another row is the same call.
CREATE OR REPLACE VIEW calls AS
SELECT c.`edition`, c.`number`, c.`at`, c.`committed_at`, c.`kind`, c.`counted`, c.`calls`, CASE WHEN k.corrections IS NULL THEN c.`spend` ELSE coalesce(c.`spend`, 0) + coalesce(k.changed, 0) END AS `spend`, c.`id`, c.`request_id`, c.`trace_id`, c.`span_id`, c.`start_time`, c.`end_time`, c.`provider`, c.`operation`, c.`request_model`, c.`response_model`, c.`region`, c.`status`, c.`error_type`, c.`cost_source`, c.`price_book`, c.`source`, c.`input_tokens`, c.`output_tokens`, c.`cache_read_tokens`, c.`cache_write_tokens`, c.`cache_write_1h_tokens`, c.`reasoning_tokens`, c.`cost`, c.`estimated_cost`, c.`user`, c.`team`, c.`session`, c.`api_key`, c.`device`, c.`tags`, c.`shadow`, c.`name`, c.`model`, c.`token_type`, c.`value`, c.`value_money`, c.`unit`, c.`meters`, c.`corrects`, c.`reason`, c.`known_at`, c.`run`, c.`parent_run`, c.`ancestors`, c.`charges`, c.`counted_by`, c.`date`,
       coalesce(k.corrections, 0) AS corrections
  FROM once c
  LEFT JOIN (
         SELECT `corrects` AS corrected, sum(`spend`) AS changed, count(*) AS corrections,
                sum(`calls`) AS changed_calls
           FROM once WHERE `kind` = 'correction' GROUP BY `corrects`
       ) k ON k.corrected = c.`id`
 WHERE c.`kind` = 'inference' AND coalesce(k.changed_calls, 0) >= 0;
-- Sums by the day of the call in UTC. A correction belongs to the day of the call that it changes.
CREATE OR REPLACE VIEW daily AS
SELECT CAST(`at` AS Nullable(Date)) AS day, sum(`calls`) AS calls, sum(`spend`) AS spend,
       sum(`input_tokens`) AS input_tokens, sum(`output_tokens`) AS output_tokens
  FROM spend GROUP BY CAST(`at` AS Nullable(Date));
CREATE OR REPLACE VIEW by_owner AS
SELECT CAST(`at` AS Nullable(Date)) AS day, `team`, `user`, `api_key`, sum(`calls`) AS calls, sum(`spend`) AS spend
  FROM spend GROUP BY CAST(`at` AS Nullable(Date)), `team`, `user`, `api_key`;
-- Rows that became known on a later day than the day of the call.
CREATE OR REPLACE VIEW late AS
SELECT `edition`, `number`, `at`, `committed_at`, `kind`, `counted`, `calls`, `spend`, `id`, `request_id`, `trace_id`, `span_id`, `start_time`, `end_time`, `provider`, `operation`, `request_model`, `response_model`, `region`, `status`, `error_type`, `cost_source`, `price_book`, `source`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `cache_write_1h_tokens`, `reasoning_tokens`, `cost`, `estimated_cost`, `user`, `team`, `session`, `api_key`, `device`, `tags`, `shadow`, `name`, `model`, `token_type`, `value`, `value_money`, `unit`, `meters`, `corrects`, `reason`, `known_at`, `run`, `parent_run`, `ancestors`, `charges`, `counted_by`, `date`, usd, CAST(coalesce(`known_at`, `committed_at`) AS Nullable(Date)) AS known_on
  FROM spend WHERE CAST(coalesce(`known_at`, `committed_at`) AS Nullable(Date)) > CAST(`at` AS Nullable(Date));
-- Sums by hour, with column names of FOCUS.
CREATE OR REPLACE VIEW focus AS
SELECT date_trunc('hour', `at`, 'UTC') AS ChargePeriodStart, 'Usage' AS ChargeCategory, 'AI and Machine Learning' AS ServiceCategory,
       `provider` AS ServiceProviderName, coalesce(`response_model`, `request_model`, `model`) AS ResourceId,
       `region` AS RegionId, `team` AS SubAccountId, 'USD' AS BillingCurrency, sum(`spend`) AS BilledCost,
       sum(`calls`) AS x_Calls, sum(`input_tokens`) AS x_InputTokens, sum(`output_tokens`) AS x_OutputTokens,
       `cost_source` AS x_CostSource
  FROM spend
 GROUP BY date_trunc('hour', `at`, 'UTC'), `provider`, coalesce(`response_model`, `request_model`, `model`), `region`, `team`,
          `cost_source`;
