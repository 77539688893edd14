/** The settings of each sender, as docs/connect has them: written by make docs-reference. */
export const TOOLS = [
 {
  "id": "litellm",
  "title": "LiteLLM",
  "kind": "gateways",
  "source": "litellm",
  "steps": [
   {
    "text": "In the proxy's config.yaml:"
   },
   {
    "code": "litellm_settings:\n  callbacks: [\"generic_api\", \"otel\"]"
   },
   {
    "text": "In its environment:"
   },
   {
    "code": "GENERIC_LOGGER_ENDPOINT=http://HOST:4318/v1/ai-telemetry/litellm\nGENERIC_LOGGER_HEADERS=Authorization=KEY\nOTEL_EXPORTER=otlp_http\nOTEL_ENDPOINT=http://HOST:4318/v1/traces\nOTEL_HEADERS=Authorization=KEY"
   }
  ]
 },
 {
  "id": "kong",
  "title": "Kong",
  "kind": "gateways",
  "source": "kong",
  "steps": [
   {
    "text": "In the declarative configuration:"
   },
   {
    "code": "plugins:\n  - name: http-log\n    config:\n      http_endpoint: http://HOST:4318/v1/ai-telemetry/kong\n      headers:\n        Authorization: KEY\n      queue:\n        max_batch_size: 100\n  - name: ai-proxy\n    config:\n      logging:\n        log_statistics: true\n        log_payloads: false"
   },
   {
    "text": "ai-proxy needs its other settings, too; only logging is shown. A queue.max_retry_time longer than 60 s bridges longer pauses of Tollhouse."
   }
  ]
 },
 {
  "id": "envoy-ai-gateway",
  "title": "Envoy AI Gateway",
  "kind": "gateways",
  "source": "openinference",
  "steps": [
   {
    "text": "In the values of its Helm chart:"
   },
   {
    "code": "extProc:\n  extraEnvVars:\n    - name: OTEL_EXPORTER_OTLP_ENDPOINT\n      value: http://HOST:4318\n    - name: OTEL_EXPORTER_OTLP_PROTOCOL\n      value: http/protobuf\n    - name: OTEL_EXPORTER_OTLP_HEADERS\n      value: Authorization=KEY\n    - name: OTEL_METRICS_EXPORTER\n      value: none\n    - name: OPENINFERENCE_HIDE_INPUTS\n      value: \"true\"\n    - name: OPENINFERENCE_HIDE_OUTPUTS\n      value: \"true\""
   },
   {
    "text": "Access-log lines in JSON can be sent instead: tollhouse send --as envoy_ai_gateway access.log."
   }
  ]
 },
 {
  "id": "cloudflare",
  "title": "Cloudflare",
  "kind": "gateways",
  "source": "cloudflare",
  "steps": [
   {
    "text": "In the dashboard: AI Gateway, the gateway, Settings, OpenTelemetry, add a destination."
   },
   {
    "text": "URL: https://HOST/v1/traces"
   },
   {
    "text": "Content type: JSON or protobuf"
   },
   {
    "text": "Authorization: a secret with the value KEY"
   },
   {
    "text": "The log entries of its API can be sent instead:"
   },
   {
    "code": "tollhouse send --as cloudflare logs.json"
   }
  ]
 },
 {
  "id": "openrouter",
  "title": "OpenRouter",
  "kind": "gateways",
  "source": "openrouter",
  "steps": [
   {
    "text": "In Settings, Observability: enable Broadcast, add a Webhook destination, test and save it."
   },
   {
    "text": "URL: https://HOST/v1/traces"
   },
   {
    "text": "Method: POST"
   },
   {
    "text": "Headers: the JSON below"
   },
   {
    "code": "{\"Authorization\": \"KEY\"}"
   },
   {
    "text": "Privacy Mode keeps prompts at OpenRouter; Tollhouse drops them in any case. Generation stats that you fetched can be sent, too:"
   },
   {
    "code": "tollhouse send --as openrouter generations.json"
   }
  ]
 },
 {
  "id": "portkey",
  "title": "Portkey",
  "kind": "gateways",
  "source": "portkey",
  "steps": [
   {
    "text": "In the environment of the gateway:"
   },
   {
    "code": "OTEL_PUSH_ENABLED=true\nOTEL_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=Authorization=KEY\nOTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
   },
   {
    "text": "Its experimental traces of the GenAI conventions (EXPERIMENTAL_GEN_AI_OTEL_TRACES_ENABLED) are understood, too, and have no cost. A log export, analytics rows and log files are sent as they are:"
   },
   {
    "code": "tollhouse send --as portkey export.jsonl"
   }
  ]
 },
 {
  "id": "bifrost",
  "title": "Bifrost",
  "kind": "gateways",
  "source": "bifrost",
  "steps": [
   {
    "text": "In config.json:"
   },
   {
    "code": "{\n  \"plugins\": [\n    {\n      \"enabled\": true,\n      \"name\": \"otel\",\n      \"config\": {\n        \"service_name\": \"bifrost\",\n        \"collector_url\": \"http://HOST:4318\",\n        \"trace_type\": \"genai_extension\",\n        \"protocol\": \"http\",\n        \"headers\": {\"Authorization\": \"env.TOLLHOUSE_KEY\"}\n      }\n    }\n  ]\n}"
   },
   {
    "code": "TOLLHOUSE_KEY=KEY"
   },
   {
    "text": "Its traces from Kafka or Pub/Sub go to http://HOST:4318/v1/ai-telemetry/bifrost."
   }
  ]
 },
 {
  "id": "agentgateway",
  "title": "agentgateway",
  "kind": "gateways",
  "source": "agentgateway",
  "steps": [
   {
    "text": "In config.yaml:"
   },
   {
    "code": "frontendPolicies:\n  tracing:\n    host: HOST:4318\n    protocol: http\n    randomSampling: true\n    clientSampling: true\n    policies:\n      requestHeaderModifier:\n        set:\n          Authorization: KEY"
   },
   {
    "text": "Its log lines in JSON can be sent instead:"
   },
   {
    "code": "tollhouse send --as agentgateway agentgateway.log"
   }
  ]
 },
 {
  "id": "bedrock",
  "title": "Amazon Bedrock",
  "kind": "gateways",
  "source": "bedrock",
  "steps": [
   {
    "text": "Switch on model invocation logging to a log group, text data off. The destination of the Firehose stream, destination.json:"
   },
   {
    "code": "{\n  \"EndpointConfiguration\": {\n    \"Url\": \"https://HOST/v1/ai-telemetry/bedrock\",\n    \"Name\": \"Tollhouse\",\n    \"AccessKey\": \"KEY\"\n  },\n  \"RequestConfiguration\": {\"ContentEncoding\": \"GZIP\"},\n  \"BufferingHints\": {\"SizeInMBs\": 1, \"IntervalInSeconds\": 60},\n  \"RetryOptions\": {\"DurationInSeconds\": 7200},\n  \"S3BackupMode\": \"FailedDataOnly\",\n  \"S3Configuration\": {\"RoleARN\": \"ROLE\", \"BucketARN\": \"BUCKET\"}\n}"
   },
   {
    "code": "aws firehose create-delivery-stream --delivery-stream-name tollhouse \\\n  --http-endpoint-destination-configuration file://destination.json\naws logs put-subscription-filter --log-group-name GROUP --filter-name tollhouse --filter-pattern '' \\\n  --destination-arn STREAM --role-arn ROLE"
   },
   {
    "text": "What was logged to S3, or what Firehose set aside there, is sent by hand:"
   },
   {
    "code": "aws s3 sync s3://BUCKET/AWSLogs logs && tollhouse send --as bedrock logs"
   }
  ]
 },
 {
  "id": "vertex",
  "title": "Vertex AI",
  "kind": "gateways",
  "source": "vertex",
  "steps": [
   {
    "text": "Switch on request-response logging with a sampling rate of 1, then send the rows of the day before, for example from cron. The command posts them to http://HOST:4318/v1/ai-telemetry/vertex:"
   },
   {
    "code": "bq query --format=json --use_legacy_sql=false --max_rows=1000000 \\\n  'SELECT * FROM `PROJECT.DATASET.TABLE` WHERE DATE(logging_time) = CURRENT_DATE() - 1' > rows.json\ntollhouse send --as vertex --to http://HOST:4318 --key-env TOLLHOUSE_KEY rows.json"
   },
   {
    "code": "TOLLHOUSE_KEY=KEY"
   }
  ]
 },
 {
  "id": "azure-apim",
  "title": "Azure API Management",
  "kind": "gateways",
  "source": "azure_apim",
  "steps": [
   {
    "text": "Switch on the category, message logging off, then send the last hour, for example from cron:"
   },
   {
    "code": "az monitor log-analytics query --workspace WORKSPACE --output json \\\n  --analytics-query 'ApiManagementGatewayLlmLog | where TimeGenerated > ago(65m)' > rows.json\ntollhouse send --as azure_apim --to http://HOST:4318 --key-env TOLLHOUSE_KEY rows.json"
   },
   {
    "code": "TOLLHOUSE_KEY=KEY"
   },
   {
    "text": "A function posts {\"records\": [...]} of the Event Hub to http://HOST:4318/v1/ai-telemetry/azure_apim as it is."
   }
  ]
 },
 {
  "id": "databricks",
  "title": "Databricks",
  "kind": "gateways",
  "source": "databricks",
  "steps": [
   {
    "text": "Send the last two hours, for example each hour from cron. The command posts them to http://HOST:4318/v1/ai-telemetry/databricks:"
   },
   {
    "code": "databricks api post /api/2.0/sql/statements --json '{\"warehouse_id\": \"WAREHOUSE\", \"wait_timeout\": \"50s\",\n  \"statement\": \"SELECT * FROM system.ai_gateway.usage WHERE event_time > current_timestamp() - INTERVAL 2 HOURS\"}' \\\n  | jq -c '[.manifest.schema.columns[].name] as $names | .result.data_array[]\n      | [$names, .] | transpose | map({(.[0]): .[1]}) | add' > rows.ndjson\ntollhouse send --as databricks --to http://HOST:4318 --key-env TOLLHOUSE_KEY rows.ndjson"
   },
   {
    "code": "TOLLHOUSE_KEY=KEY"
   },
   {
    "text": "An answer has the first part of the rows alone: ask for shorter spans where there are more."
   }
  ]
 },
 {
  "id": "snowflake",
  "title": "Snowflake Cortex",
  "kind": "gateways",
  "source": "snowflake",
  "steps": [
   {
    "text": "Send the last two hours of both, for example each hour from cron. The command posts them to http://HOST:4318/v1/ai-telemetry/snowflake:"
   },
   {
    "code": "for view in AI_GATEWAY_USAGE_HISTORY CORTEX_REST_API_USAGE_HISTORY; do\n  snow sql --format json --query \"SELECT * FROM SNOWFLAKE.ACCOUNT_USAGE.$view\n    WHERE START_TIME > DATEADD(hour, -2, CURRENT_TIMESTAMP())\" > rows.json\n  tollhouse send --as snowflake --to http://HOST:4318 --key-env TOLLHOUSE_KEY rows.json\ndone"
   },
   {
    "code": "TOLLHOUSE_KEY=KEY"
   }
  ]
 },
 {
  "id": "claude-code",
  "title": "Claude Code",
  "kind": "coding assistants",
  "source": "claude_code",
  "steps": [
   {
    "text": "Without the agent, in the environment or under env in ~/.claude/settings.json:"
   },
   {
    "code": "CLAUDE_CODE_ENABLE_TELEMETRY=1\nOTEL_LOGS_EXPORTER=otlp\nOTEL_METRICS_EXPORTER=otlp\nOTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\nOTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   },
   {
    "text": "OTEL_RESOURCE_ATTRIBUTES=team=search adds attributes that become tags."
   }
  ]
 },
 {
  "id": "claude-code-behind-a-gateway",
  "title": "Claude Code behind a gateway",
  "kind": "coding assistants",
  "source": "claude_code",
  "steps": [
   {
    "code": "ANTHROPIC_BASE_URL=http://LITELLM:4000\nCLAUDE_CODE_ENABLE_TELEMETRY=1\nOTEL_LOGS_EXPORTER=otlp\nOTEL_METRICS_EXPORTER=otlp\nOTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\nOTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   },
   {
    "text": "In tollhouse.toml, so that the gateway counts alone:"
   },
   {
    "code": "[sources.claude_code]\ncount = false"
   }
  ]
 },
 {
  "id": "codex",
  "title": "Codex",
  "kind": "coding assistants",
  "source": "codex",
  "steps": [
   {
    "text": "Without the agent, in ~/.codex/config.toml:"
   },
   {
    "code": "[otel]\nlog_user_prompt = false\n[otel.exporter.otlp-http]\nendpoint = \"http://HOST:4318/v1/logs\"\nprotocol = \"binary\"\nheaders = { authorization = \"KEY\" }\n[otel.trace_exporter.otlp-http]\nendpoint = \"http://HOST:4318/v1/traces\"\nprotocol = \"binary\"\nheaders = { authorization = \"KEY\" }\n[otel.metrics_exporter.otlp-http]\nendpoint = \"http://HOST:4318/v1/metrics\"\nprotocol = \"binary\"\nheaders = { authorization = \"KEY\" }"
   },
   {
    "text": "The first of the three exporters is enough for every count."
   }
  ]
 },
 {
  "id": "gemini-cli",
  "title": "Gemini CLI",
  "kind": "coding assistants",
  "source": "gemini_cli",
  "steps": [
   {
    "text": "Without the agent, in ~/.gemini/settings.json:"
   },
   {
    "code": "{\n  \"telemetry\": {\n    \"enabled\": true,\n    \"target\": \"local\",\n    \"otlpEndpoint\": \"http://HOST:4318\",\n    \"otlpProtocol\": \"http\",\n    \"logPrompts\": false\n  }\n}"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "qwen-code",
  "title": "Qwen Code",
  "kind": "coding assistants",
  "source": "qwen_code",
  "steps": [
   {
    "text": "Without the agent, in ~/.qwen/settings.json:"
   },
   {
    "code": "{\n  \"telemetry\": {\n    \"enabled\": true,\n    \"target\": \"local\",\n    \"otlpEndpoint\": \"http://HOST:4318\",\n    \"otlpProtocol\": \"http\",\n    \"logPrompts\": false\n  }\n}"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "copilot",
  "title": "Copilot",
  "kind": "coding assistants",
  "source": "copilot_cli",
  "steps": [
   {
    "text": "Copilot CLI, in its environment:"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   },
   {
    "text": "VS Code, in its settings.json; the key comes from the environment above:"
   },
   {
    "code": "{\n  \"github.copilot.chat.otel.enabled\": true,\n  \"github.copilot.chat.otel.exporterType\": \"otlp-http\",\n  \"github.copilot.chat.otel.otlpEndpoint\": \"http://HOST:4318\"\n}"
   }
  ]
 },
 {
  "id": "opencode",
  "title": "opencode",
  "kind": "coding assistants",
  "source": "vercel_ai",
  "steps": [
   {
    "text": "In ~/.config/opencode/opencode.json:"
   },
   {
    "code": "{\"experimental\": {\"openTelemetry\": true}}"
   },
   {
    "text": "In its environment:"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY\nOTEL_BSP_SCHEDULE_DELAY=200"
   }
  ]
 },
 {
  "id": "cursor",
  "title": "Cursor",
  "kind": "coding assistants",
  "source": "cursor",
  "steps": [
   {
    "text": "In the team's dashboard, at OpenTelemetry Export:"
   },
   {
    "text": "Endpoint: https://HOST; Cursor sends to https://HOST/v1/logs and https://HOST/v1/metrics"
   },
   {
    "text": "Header: Authorization with the value KEY"
   },
   {
    "text": "Families: the API events; counters are not needed, conversations neither"
   },
   {
    "text": "Only if a team exports metrics without API events, let the counters count:"
   },
   {
    "code": "[sources.cursor]\ncount = true"
   }
  ]
 },
 {
  "id": "opentelemetry",
  "title": "OpenTelemetry SDKs",
  "kind": "applications",
  "source": "otel",
  "steps": [
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY\nOTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\nOTEL_EXPORTER_OTLP_COMPRESSION=gzip\nOTEL_SERVICE_NAME=shop"
   },
   {
    "text": "Over gRPC it is OTEL_EXPORTER_OTLP_PROTOCOL=grpc and http://HOST:4317. What an SDK needs besides:"
   },
   {
    "text": "Python: opentelemetry-instrument python app.py, or an exporter in the program"
   },
   {
    "text": "Node: --require @opentelemetry/auto-instrumentations-node/register, or NodeSDK"
   },
   {
    "text": "Java: -javaagent:opentelemetry-javaagent.jar; version 2 of the agent speaks HTTP by default"
   },
   {
    "text": "Go: otlptracehttp.New(ctx) of go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
   },
   {
    "text": "OTEL_RESOURCE_ATTRIBUTES=team=search adds attributes of the sender. Sampling leaves calls out: keep OTEL_TRACES_SAMPLER=parentbased_always_on, the default."
   }
  ]
 },
 {
  "id": "openllmetry",
  "title": "OpenLLMetry",
  "kind": "applications",
  "source": "openllmetry",
  "steps": [
   {
    "code": "from opentelemetry.instrumentation.openai import OpenAIInstrumentor\nfrom opentelemetry import trace\nfrom opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\n\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))\ntrace.set_tracer_provider(provider)\nOpenAIInstrumentor().instrument(tracer_provider=provider)"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "openinference",
  "title": "OpenInference",
  "kind": "applications",
  "source": "openinference",
  "steps": [
   {
    "code": "from openinference.instrumentation.openai import OpenAIInstrumentor\nfrom opentelemetry import trace\nfrom opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\n\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))\ntrace.set_tracer_provider(provider)\nOpenAIInstrumentor().instrument(tracer_provider=provider)"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "pydantic-ai",
  "title": "Pydantic AI",
  "kind": "applications",
  "source": "pydantic_ai",
  "steps": [
   {
    "code": "from pydantic_ai import Agent\nfrom opentelemetry import trace\nfrom opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\n\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))\ntrace.set_tracer_provider(provider)\nAgent.instrument_all()"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "langchain",
  "title": "LangChain and LangGraph",
  "kind": "applications",
  "source": "openinference",
  "steps": [
   {
    "code": "from openinference.instrumentation.langchain import LangChainInstrumentor\nfrom opentelemetry import trace\nfrom opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\n\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))\ntrace.set_tracer_provider(provider)\nLangChainInstrumentor().instrument(tracer_provider=provider)"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "vercel-ai",
  "title": "Vercel AI SDK",
  "kind": "applications",
  "source": "vercel_ai",
  "steps": [
   {
    "code": "import { trace } from \"@opentelemetry/api\";\nimport { OTLPTraceExporter } from \"@opentelemetry/exporter-trace-otlp-http\";\nimport { BatchSpanProcessor, NodeTracerProvider } from \"@opentelemetry/sdk-trace-node\";\n\nconst tracing = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });\ntrace.setGlobalTracerProvider(tracing);\n\nconst telemetry = { experimental_telemetry: { isEnabled: true, metadata: { userId: \"ada\" } } };\n// await generateText({ ...telemetry, model, prompt });"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "crewai",
  "title": "CrewAI",
  "kind": "applications",
  "source": "openinference",
  "steps": [
   {
    "code": "from openinference.instrumentation.crewai import CrewAIInstrumentor\nfrom openinference.instrumentation.openai import OpenAIInstrumentor\nfrom opentelemetry import trace\nfrom opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\n\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))\ntrace.set_tracer_provider(provider)\nCrewAIInstrumentor().instrument(tracer_provider=provider)\nOpenAIInstrumentor().instrument(tracer_provider=provider)"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "autogen",
  "title": "AutoGen",
  "kind": "applications",
  "source": "openinference",
  "steps": [
   {
    "code": "from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor\nfrom openinference.instrumentation.openai import OpenAIInstrumentor\nfrom opentelemetry import trace\nfrom opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\n\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))\ntrace.set_tracer_provider(provider)\nAutogenAgentChatInstrumentor().instrument(tracer_provider=provider)\nOpenAIInstrumentor().instrument(tracer_provider=provider)"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "haystack",
  "title": "Haystack",
  "kind": "applications",
  "source": "openinference",
  "steps": [
   {
    "code": "from openinference.instrumentation.haystack import HaystackInstrumentor\nfrom opentelemetry import trace\nfrom opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\n\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))\ntrace.set_tracer_provider(provider)\nHaystackInstrumentor().instrument(tracer_provider=provider)"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "dspy",
  "title": "DSPy",
  "kind": "applications",
  "source": "openinference",
  "steps": [
   {
    "code": "from openinference.instrumentation.dspy import DSPyInstrumentor\nfrom openinference.instrumentation.litellm import LiteLLMInstrumentor\nfrom opentelemetry import trace\nfrom opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\n\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))\ntrace.set_tracer_provider(provider)\nDSPyInstrumentor().instrument(tracer_provider=provider)\nLiteLLMInstrumentor().instrument(tracer_provider=provider)"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "mlflow",
  "title": "MLflow",
  "kind": "applications",
  "source": "mlflow",
  "steps": [
   {
    "code": "import mlflow\n\nmlflow.openai.autolog()\nmlflow.anthropic.autolog()"
   },
   {
    "code": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://HOST:4318/v1/traces\nOTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf\nOTEL_EXPORTER_OTLP_HEADERS=authorization=KEY"
   }
  ]
 },
 {
  "id": "langfuse",
  "title": "Tools that speak Langfuse",
  "kind": "applications",
  "source": "langfuse",
  "steps": [
   {
    "code": "LANGFUSE_HOST=http://HOST:4318\nLANGFUSE_BASE_URL=http://HOST:4318\nLANGFUSE_PUBLIC_KEY=pk-anything\nLANGFUSE_SECRET_KEY=KEY"
   },
   {
    "text": "SDKs before version 3 read LANGFUSE_HOST, later ones LANGFUSE_BASE_URL."
   }
  ]
 },
 {
  "id": "openmeter",
  "title": "OpenMeter",
  "kind": "applications",
  "source": "openmeter",
  "steps": [
   {
    "code": "import openmeter\n\nclient = openmeter.Client(endpoint=\"http://HOST:4318\", headers={\"Authorization\": \"Bearer KEY\"})\nclient.ingest_events(\n    {\n        \"specversion\": \"1.0\",\n        \"id\": \"call-1\",\n        \"source\": \"shop\",\n        \"type\": \"llm\",\n        \"subject\": \"customer-1\",\n        \"data\": {\"model\": \"gpt-4o\", \"prompt_tokens\": 100, \"completion_tokens\": 20},\n    }\n)"
   },
   {
    "text": "Usage events of your own that are no calls go to http://HOST:4318/v1/events under a key with the scope events_v1:create_event. GET /v1/events and GET /v1/events/types read them back, under another key with the scope unit-cost_v1:read_telemetry."
   }
  ]
 },
 {
  "id": "helicone",
  "title": "Helicone",
  "kind": "applications",
  "source": "helicone",
  "steps": [
   {
    "text": "The key may send AI telemetry and nothing else, because it stands in the address:"
   },
   {
    "code": "tollhouse keys create --name helicone --scope ai-telemetry-ingest:ingest-ai-telemetry"
   },
   {
    "text": "In Helicone: Webhooks, add a webhook, sample rate 100, \"include data\" on."
   },
   {
    "text": "Webhook URL: https://HOST/v1/ai-telemetry/helicone/KEY"
   },
   {
    "text": "To refuse what is not signed with the secret that Helicone shows:"
   },
   {
    "code": "[sources.helicone]\nsigning_secret_file = \"/run/secrets/helicone\""
   }
  ]
 }
];
