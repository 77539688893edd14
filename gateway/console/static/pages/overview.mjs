/** What is spent, on what, by whom, and whether Tollhouse itself is well. */
import {html, useEffect} from "../lib/html.mjs";
import {addressOf, get} from "../lib/api.mjs";
import {StackedBars} from "../lib/chart.mjs";
import {ago, change, count, exactCount, money, per, percent, sum} from "../lib/format.mjs";
import {Copy, Problem} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";

const DAY_MS = 86400000;
const DAYS = 30;
const LISTED = 5;
const LISTS = [["model", "Models"], ["team", "Teams"], ["user", "Users"]];

const day = (date) => date.toISOString().slice(0, 10);

async function load() {
  const now = new Date();
  const month = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1));
  const before = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1, 1));
  const elapsed = now.getUTCDate() - 1;
  const sameDay = new Date(Math.min(before.getTime() + elapsed * DAY_MS, month.getTime() - DAY_MS));
  const [today, thisMonth, lastMonth, daily, status, ledger, insights, ...lists] = await Promise.all([
    get("/report", {from: day(now)}),
    get("/report", {from: day(month)}),
    get("/report", {from: day(before), to: day(sameDay)}),
    get("/report", {from: day(new Date(now - (DAYS - 1) * DAY_MS)), by: "model", per: "daily"}),
    get("/status"),
    get("/ledger"),
    get("/insights", {status: ["new", "in_progress"], limit: LISTED}).catch(() => null),
    ...LISTS.map(([name]) => get("/report", {from: day(month), by: name})),
  ]);
  const bins = Array.from({length: DAYS}, (_, index) => day(new Date(now - (DAYS - 1 - index) * DAY_MS)));
  return {now, month, today, thisMonth, lastMonth, daily, bins, status, ledger, insights, lists};
}

export function Overview({isDark}) {
  const query = useQuery(load, []);
  const {data} = query;
  const isEmpty = data && !data.status.topics.some((topic) => topic.accepted > 0);
  useEffect(() => {
    const again = setInterval(() => document.hidden || query.reload(), isEmpty ? 3000 : 30000);
    return () => clearInterval(again);
  }, [isEmpty]);
  return html`
    <${Problem} error=${query.error} at=${query.at} retry=${query.reload} />
    ${!data && !query.error && html`<p role="status">Loading ...</p>`}
    ${data && (isEmpty ? html`<${FirstRecord} />` : html`<${Figures} ...${data} isDark=${isDark} />`)}`;
}

const NOTHING = {cost: "0", estimated: "0", calls: 0, unpriced: 0};
const total = (answer) => answer.rows[0] ?? NOTHING;

function Figures({isDark, now, today, thisMonth, lastMonth, daily, bins, status, ledger, insights, lists}) {
  const [month, past, day_] = [thisMonth, lastMonth, today].map(total);
  const changed = change(month.cost, past.cost);
  const cells = daily.rows.map((row) => ({bin: row.period.slice(0, 10), group: row.model ?? "unknown", amount: row.cost}));
  const name = now.toLocaleString("en", {month: "long", timeZone: "UTC"});
  return html`
    <dl class="numbers">
      <${Number_} term=${`Spend in ${name}`} value=${money(month.cost)} exact=${`$${month.cost}`}
        note=${changed.percent === "new" ? "nothing in the same days of last month"
          : `${changed.percent} (${changed.amount || "no change"}) against the same days of last month`} />
      <${Number_} term="Today so far (UTC)" value=${money(day_.cost)} exact=${`$${day_.cost}`}
        note=${`${count(day_.calls)} calls`} />
      <${Number_} term=${`Calls in ${name}`} value=${count(month.calls)} exact=${exactCount(month.calls)}
        note=${`${percent(month.errors ?? 0, month.calls)} failed`} />
      <${Number_} term="Cost of a call" value=${month.calls ? money(per(month.cost, month.calls)) : "–"}
        note="average, this month" />
      <${Number_} term="Estimated share" value=${percent(month.estimated, month.cost)}
        note="of spend, from the rate card" />
      <${Number_} term="Calls without a price" value=${count(month.unpriced)} exact=${exactCount(month.unpriced)}
        note=${month.unpriced ? "they count as $0.00" : "every call has one"} />
    </dl>
    <${Health} status=${status} ledger=${ledger.ledger} />
    <${StackedBars} title=${`What the models cost, the last ${DAYS} days`} isDark=${isDark} bins=${bins} cells=${cells}
      summary=${summary(bins, cells)} />
    <div class="lists">${LISTS.map(([field, title], place) => html`
      <${Shares} key=${field} title=${title} field=${field} rows=${lists[place].rows} whole=${month.cost} />`)}</div>
    ${insights && html`<${Insights} rows=${insights.insights} />`}
    <p class="faint">The same figures: <a href=${addressOf("/report", {by: "model"})}>JSON</a>, or ${" "}
      <code>tollhouse report</code>.</p>`;
}

function Number_({term, value, exact, note}) {
  return html`<div><dt>${term}</dt><dd title=${exact}>${value}</dd><dd class="faint">${note}</dd></div>`;
}

function summary(bins, cells) {
  const byDay = bins.map((bin) => sum(["0", ...cells.filter((cell) => cell.bin === bin).map((cell) => cell.amount)]));
  const highest = byDay.reduce((best, amount, index) => (Number(amount) > Number(byDay[best]) ? index : best), 0);
  return `${money(sum(byDay))} in ${bins.length} days, highest on ${bins[highest]} with ${money(byDay[highest])}`;
}

function Shares({title, field, rows, whole}) {
  const ranked = [...rows].sort((a, b) => Number(b.cost) - Number(a.cost));
  const shown = ranked.slice(0, LISTED).map((row) => ({name: row[field] ?? "unknown", cost: row.cost}));
  const rest = ranked.slice(LISTED);
  if (rest.length) shown.push({name: `other (${rest.length})`, cost: sum(rest.map((row) => row.cost))});
  return html`<section><h2>${title}</h2><ol class="shares">${shown.map(({name, cost}) => html`
    <li key=${name}>
      <span class="name">${name}</span><span class="number" title=${`$${cost}`}>${money(cost)}</span>
      <svg aria-hidden="true" width="100%" height="4"><rect width=${`${barWidth(cost, whole)}%`} height="4" rx="2" /></svg>
    </li>`)}</ol></section>`;
}

const barWidth = (part, whole) => (Number(whole) > 0 ? Math.max(0, Math.min(100, (100 * Number(part)) / Number(whole))) : 0);

/** Whether records are taken, counted and delivered; a word with every colour. */
function Health({status, ledger}) {
  const {space, routes} = status;
  const stopped = routes.filter((route) => route.state !== "running");
  const lacking = ledger.missed + ledger.damaged + ledger.absurd;
  const used = percent(space.bytes, space.max_bytes);
  return html`<ul class="health" aria-label="How Tollhouse is">
    <${Fact} good=${space.writable} text=${space.writable ? "taking records" : `not taking records: ${space.last_error ?? "see /readyz"}`} />
    <${Fact} good=${!lacking} text=${lacking ? `${count(lacking)} records could not be counted` : "every record is counted"} />
    ${routes.length === 0 && html`<${Fact} good=${true} text="no upstream: records are kept and shown here" />`}
    ${routes.length > 0 && !stopped.length && html`<${Fact} good=${true} text=${`${routes.length} routes running`} />`}
    ${stopped.map((route) => html`<${Fact} key=${route.route} good=${false}
      text=${`${route.route} is ${route.state}${route.reason ? `: ${route.reason}` : ""}`} />`)}
    <${Fact} good=${true} text=${`spool ${used} full`} />
  </ul>`;
}

const Fact = ({good, text}) => html`<li class=${good ? "good" : "bad"}><span aria-hidden="true">${good ? "✓" : "!"}</span> ${text}</li>`;

function Insights({rows}) {
  return html`<section><h2>Open insights</h2>
    ${rows.length === 0 && html`<p class="faint">None. Detectors look every hour for waste, gaps and surprises.</p>`}
    <ul class="insights">${rows.map((row) => html`<li key=${row.id}><span>${row.title}</span>
      <span class="faint">${insightNote(row)}</span></li>`)}</ul>
  </section>`;
}

function insightNote(row) {
  const seen = `seen ${ago(new Date(Number(row.last_updated) * 1000))}`;
  return Number(row.cost_impact) > 0 ? `${money(row.cost_impact)}, ${seen}` : seen;
}

/** For a gateway that has no record yet: one command for each way in, and the page turns when the first arrives. */
function FirstRecord() {
  const here = new URL("..", document.baseURI).href.replace(/\/$/, "");
  return html`<section class="first"><h2>No record has arrived yet</h2>
    <p>This page turns when the first one does. You need a key: <code>tollhouse keys create --name laptop --use-case "Send AI
      Telemetry"</code>.</p>
    <h3>Try it without a client</h3>
    <${Copy} label="the command that sends an example" text=${`tollhouse send --example litellm --to ${here}`} />
    <h3>Claude Code</h3>
    <${Copy} label="the settings of Claude Code" text=${[
      "export CLAUDE_CODE_ENABLE_TELEMETRY=1 OTEL_LOGS_EXPORTER=otlp OTEL_METRICS_EXPORTER=otlp",
      `export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_ENDPOINT=${here}`,
      'export OTEL_EXPORTER_OTLP_HEADERS="Authorization=YOUR-KEY"'].join("\n")} />
    <h3>LiteLLM</h3>
    <${Copy} label="the settings of LiteLLM" text=${[
      "litellm_settings:", '  callbacks: ["generic_api"]', "environment_variables:",
      `  GENERIC_LOGGER_ENDPOINT: ${here}/v1/ai-telemetry/litellm`,
      '  GENERIC_LOGGER_HEADERS: "Authorization=YOUR-KEY"'].join("\n")} />
    <h3>An OpenTelemetry SDK</h3>
    <${Copy} label="the settings of an OpenTelemetry SDK" text=${[
      `export OTEL_EXPORTER_OTLP_ENDPOINT=${here} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf`,
      'export OTEL_EXPORTER_OTLP_HEADERS="Authorization=YOUR-KEY"'].join("\n")} />
  </section>`;
}

export const page = {path: "/", title: "Overview", shortcut: "o", Page: Overview};
