-- Each id once, which matters only after a restore or an import.
CREATE OR REPLACE VIEW once AS
SELECT {columns}
  FROM (
         SELECT {columns}, row_number() OVER (
                  PARTITION BY {c_id} ORDER BY CASE WHEN {c_number} IS NULL THEN 1 ELSE 0 END, {c_number}, {c_edition}
                ) AS place
           FROM lake
       ) r
 WHERE place = 1;
-- Rows that count: their sums equal the reports.
CREATE OR REPLACE VIEW spend AS
SELECT {columns}, {usd} AS usd FROM lake WHERE {c_counted};
-- One row per call, with its spend after corrections and the number of corrections. A call that a correction took
-- back has no row, because another row is the same call.
CREATE OR REPLACE VIEW calls AS
SELECT {call_columns},
       coalesce(k.corrections, 0) AS corrections
  FROM once c
  LEFT JOIN (
         SELECT {c_corrects} AS corrected, sum({c_spend}) AS changed, count(*) AS corrections,
                sum({c_calls}) AS changed_calls
           FROM once WHERE {c_kind} = 'correction' GROUP BY {c_corrects}
       ) k ON k.corrected = c.{c_id}
 WHERE c.{c_kind} = 'inference' AND coalesce(k.changed_calls, 0) >= 0;
-- Sums by the day of the call in UTC. A correction belongs to the day of the call that it changes.
CREATE OR REPLACE VIEW daily AS
SELECT {day} AS day, sum({c_calls}) AS calls, sum({c_spend}) AS spend,
       sum({c_input_tokens}) AS input_tokens, sum({c_output_tokens}) AS output_tokens
  FROM spend GROUP BY {day};
CREATE OR REPLACE VIEW by_owner AS
SELECT {day} AS day, {c_team}, {c_user}, {c_api_key}, sum({c_calls}) AS calls, sum({c_spend}) AS spend
  FROM spend GROUP BY {day}, {c_team}, {c_user}, {c_api_key};
-- Rows that became known on a later day than the day of the call.
CREATE OR REPLACE VIEW late AS
SELECT {columns}, usd, {known_day} AS known_on
  FROM spend WHERE {known_day} > {day};
-- Sums by hour, with column names of FOCUS.
CREATE OR REPLACE VIEW focus AS
SELECT {hour} AS ChargePeriodStart, 'Usage' AS ChargeCategory, 'AI and Machine Learning' AS ServiceCategory,
       {c_provider} AS ServiceProviderName, coalesce({c_response_model}, {c_request_model}, {c_model}) AS ResourceId,
       {c_region} AS RegionId, {c_team} AS SubAccountId, 'USD' AS BillingCurrency, sum({c_spend}) AS BilledCost,
       sum({c_calls}) AS x_Calls, sum({c_input_tokens}) AS x_InputTokens, sum({c_output_tokens}) AS x_OutputTokens,
       {c_cost_source} AS x_CostSource
  FROM spend
 GROUP BY {hour}, {c_provider}, coalesce({c_response_model}, {c_request_model}, {c_model}), {c_region}, {c_team},
          {c_cost_source};
