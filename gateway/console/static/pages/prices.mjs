/** Prices that people set on top of the price list, and the models that have no price. */
import {go, here, to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {count, counted, fixed, money} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Problem, Table} from "../lib/parts.mjs";
import {usePreview} from "../lib/preview.mjs";
import {useQuery} from "../lib/query.mjs";
import {Recalculate} from "../lib/recalculate.mjs";

const PATH = "/prices";
const needs = "modify_billing";
const AMOUNTS = [["input", "Input"], ["output", "Output"], ["cache_read", "Cache read"], ["cache_write", "Cache write"], ["cache_write_1h", "Cache write, one hour"]];

const TIERS = ["standard", "batch", "fast", "flex", "priority"];
const ANY_TIER = "standard, and tiers without a list price";

const place = (id) => `${PATH}/${encodeURIComponent(id)}`;
const amount = (text) => (text ? fixed(text, Math.max(2, (text.split(".")[1] ?? "").length)) : html`<span class="faint">list price</span>`);
const priced = (shown) => shown.map(([name, title]) => ({title, kind: "number", value: (row) => amount(row[name])}));

/** The effect of the typed price. It disappears when the form changes. */
function Preview() {
  const {box, look, found, error} = usePreview(async (form) => (await send("POST", `${PATH}/preview`, typed(Object.fromEntries(form)))).preview);
  return html`<fieldset ref=${box}><legend>Preview</legend>
    <p><button type="button" onClick=${look}>Preview</button> <span class="faint">Nothing is stored yet.</span></p>
    ${error && html`<p role="alert" class="wrong">${error.message}</p>`}
    <div role="status">${found && html`<p>${found.calls ? html`The price fits ${counted(found.calls, "call")} of the last 30 days. Their cost:
      <strong>${money(found.before)} before, ${money(found.after)} after</strong>.` : "The price fits no call of the last 30 days. Check the name of the model."}
      ${found.reported_calls > 0 && ` ${count(found.reported_calls)} of them keep the cost that their source reported.`}
      ${found.unpriced_calls > 0 && ` ${count(found.unpriced_calls)} of them still have no cost.`}</p>`}</div></fieldset>`;
}

const typed = (given) => Object.fromEntries(["model", "provider", "tier", "since", ...AMOUNTS.map(([name]) => name)].map((name) => [name, (given[name] ?? "").trim()]));

const fields = (row) => [
  {name: "model", label: "Model", value: row.model, required: true, note: "a * at the end matches any ending"},
  {name: "provider", label: "Provider", value: row.provider, note: "leave empty for every provider"},
  {name: "tier", label: "Service tier", type: "select", value: row.tier, options: [["", ANY_TIER], ...TIERS]},
  ...AMOUNTS.map(([name, title]) => ({name, label: title, value: row[name], note: "dollars per million tokens", autofocus: name === "input" && row.model !== ""})),
  {name: "since", label: "From", type: "date", value: row.since, note: "leave empty for all days"},
  {name: "preview", type: Preview},
];

const WHICH = [
  {title: "Model", sort: "model", value: (row) => row.model},
  {title: "Provider", sort: "provider", value: (row) => row.provider || "every provider"},
  {title: "Tier", sort: "tier", wide: true, value: (row) => row.tier || ANY_TIER},
];
const WHEN = [
  {title: "From", wide: true, sort: "since", value: (row) => row.since || "all days"},
  {title: "Set by", wide: true, value: (row) => row.author},
];

const list = (query) => ({
  path: PATH, root: "prices", at: PATH, file: (row) => ["prices", row.id], caption: "prices", what: ["prices"],
  identity: (row) => row.id, heading: (row) => row.model, show: place, one: (answer) => answer.price,
  opens: query.get("new") !== null, closed: () => query.get("new") !== null && go(here({new: null, of: null}), {replaces: true}),
  columns: [...WHICH, ...priced(AMOUNTS.slice(0, 3)), ...WHEN], panel: [...WHICH, ...priced(AMOUNTS), ...WHEN],
  Before: Unpriced,
  create: {title: "Set a price", needs, fields: () => fields({model: query.get("new") ?? "", provider: query.get("of") ?? ""}),
    run: async (_, given) => {
      await send("POST", PATH, typed(given));
      return html`<${Recalculate} text="The price is set." since=${given.since} />`;
    }},
  actions: [
    {title: "Edit", needs, fields, run: async (row, given) => {
      await send("PATCH", place(row.id), {...typed(given), version: row.version});
      return html`<${Recalculate} text="The price is changed." since=${[row.since, given.since].sort()[0]} />`;
    }},
    {title: "Delete", needs, danger: true, text: () => "New calls have the price of the price list again.", run: (row) => send("DELETE", place(row.id)).then(() => null)},
  ],
  empty: html`<h2>No prices of your own</h2><p>Tollhouse estimates costs with its price list. Set a price for a model that the list lacks, or for a negotiated price.</p>`,
});

/** The models of the last 30 days whose calls count as $0, each with a link that opens the form. */
function Unpriced() {
  const {data, error, reload} = useQuery(async () => (await get("/report", {range: "last_30d", by: ["model", "provider"], where: ["cost_source=none"], show: "unpriced"})).rows, [], ["ledger", "prices"]);
  const rows = (data ?? []).filter((row) => row.unpriced > 0);
  return html`<${Problem} error=${error} retry=${reload} />${rows.length > 0 && html`<section><h2>Models without a price</h2>
    <p>${counted(rows.reduce((all, row) => all + row.unpriced, 0), "call of the last 30 days has", "calls of the last 30 days have")} no price, and count as $0 in every total.</p>
    <${Table} caption="models without a price" rows=${rows} identity=${(row) => `${row.model} ${row.provider}`} href=${(row) => (row.model ? to(PATH, {new: row.model, of: row.provider}) : null)}
      columns=${[{title: "Model", value: (row) => row.model || "unknown"}, {title: "Provider", value: (row) => row.provider || "unknown"}, {title: "Calls", kind: "number", value: (row) => count(row.unpriced)}]} /></section>`}`;
}

export const Page = (given) => html`<${ListPage} key=${given.query.get("new")} list=${list(given.query)} ...${given} />`;
