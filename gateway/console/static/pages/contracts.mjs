/** Contracts with providers: their terms, and their costs in a month. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {amounts, exactCount, money} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Fields, Loading, MonthChoice, Problem, Table, amount, chosenMonth} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {Recalculate} from "../lib/recalculate.mjs";

const PATH = "/contracts";
const needs = "modify_billing";
const UNITS = {ptu: "PTU", model_unit: "model units", gsu: "GSU"};
const CHARGES = {commitment: "used capacity", unused: "days without a covered call"};
const LISTS = ["models", "kinds"];

const at = (id) => `${PATH}/${encodeURIComponent(id)}`;
const scope = ({models, tier}) => `${models?.length ? models.join(", ") : "all models"}${tier ? `, tier ${tier}` : ""}`;

/** Write a term as KIND FIELD=VALUE ..., as the commands do. */
const termLine = ({kind, ...fields}) => [kind, ...Object.entries(fields).filter(([, value]) => value?.length).map(([name, value]) => `${name}=${value}`)].join(" ");

/** Parse lines of KIND FIELD=VALUE ... into terms. Throws an error that names the first wrong word. */
function termsIn(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [kind, ...words] = line.split(/\s+/);
    return {kind, ...Object.fromEntries(words.map((word) => {
      const [name, value] = word.split("=");
      if (!value) throw new Error(`${word} is not FIELD=VALUE. Write a term as KIND FIELD=VALUE ...`);
      return [name, LISTS.includes(name) ? value.split(",") : value];
    }))};
  });
}

const typed = ({terms, ...given}) => ({...given, terms: termsIn(terms)});

const fields = (row) => [
  {name: "name", label: "Name", value: row.name, required: true},
  {name: "provider", label: "Provider", value: row.provider, required: true, note: "such as openai or azure.ai.openai"},
  {name: "since", label: "First day", type: "date", value: row.since, required: true},
  {name: "until", label: "First day after the contract", type: "date", value: row.until ?? "", note: "leave empty for a contract without an end"},
  {name: "currency", label: "Currency", value: row.currency ?? "USD", note: "currency of amounts"},
  {name: "terms", label: "Terms", type: "area", rows: 5, value: (row.terms ?? []).map(termLine).join("\n"),
    note: "one per line, such as: discount percent=10 models=gpt-4o*,o3; tier_price tier=batch factor=0.4; capacity unit=ptu number=100 price=1 per=hour"},
];

const CAPACITY = [
  {title: "Contract", value: (row) => row.contract},
  {title: "Calls of", wide: true, value: scope},
  {title: "Units", kind: "number", value: (row) => (row.unit ? `${row.number} ${UNITS[row.unit]}` : "")},
  amount("Cost", "cost"), amount("Unused", "unused"), amount("Value at list prices", "list_value"),
  {title: "Utilisation (value ÷ cost)", kind: "number", value: (row) => (row.utilisation === null ? "" : `${row.utilisation} %`)},
  {title: "Hours without a call", kind: "number", wide: true, value: (row) => (row.idle_hours === null ? "not known" : exactCount(row.idle_hours))},
];
const PARTS = [
  {title: "Contract", value: (row) => row.contract}, {title: "Team", value: (row) => row.team ?? "none"},
  {title: "Charge", value: (row) => CHARGES[row.charge] ?? row.charge}, amount("Cost", "cost"),
];

function Month({query}) {
  const month = chosenMonth(query);
  const found = useQuery(() => get("/contract-costs", {month}), [month], ["contracts", "ledger"]);
  const {data, error, at: when, reload} = found;
  return html`<p class="bar"><${MonthChoice} path=${PATH} month=${month} /></p>
    <${Problem} error=${error} at=${when} retry=${reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${data && html`<dl class="numbers">
        <div><dt>Paid by contract</dt><dd title=${`$${data.total.cost}`}>${money(data.total.cost)}</dd><dd class="faint">up to today, without calls</dd>
          ${Object.keys(data.total.unconverted).length > 0 && html`<dd class="faint">not included, because no exchange rate is known: ${amounts(data.total.unconverted)}</dd>`}</div>
        <div><dt>Unused</dt><dd title=${`$${data.total.unused}`}>${money(data.total.unused)}</dd><dd class="faint">on days without a covered call</dd></div></dl>
      ${data.capacity.length > 0 && html`<${Table} caption=${`Capacity in ${month}`} rows=${data.capacity} columns=${CAPACITY}
          identity=${(row) => `${row.contract} ${termLine({kind: row.unit, models: row.models, tier: row.tier})}`} />`}
      ${data.rows.length > 0 && html`<h2>Parts of teams</h2><${Table} caption="Parts of teams" rows=${data.rows} columns=${PARTS} identity=${(row) => `${row.contract} ${row.charge} ${row.team}`} />`}`}<//>`;
}

/** Offer to recalculate the calls from the earlier of the first days before and after a change. */
const offer = (text, before) => ({contract}) => html`<${Recalculate} text=${text} since=${[before, contract.since].filter(Boolean).sort()[0]} />`;

const LIST = {
  path: PATH, root: "contracts", at: PATH, file: (row) => ["contracts", row.id], caption: "contracts", what: ["contracts"], show: at, one: (answer) => answer.contract,
  identity: (row) => row.id, heading: (row) => row.name,
  columns: [
    {title: "Name", sort: "name", value: (row) => row.name},
    {title: "Provider", sort: "provider", value: (row) => row.provider},
    {title: "Since", sort: "since", value: (row) => row.since},
    {title: "Until", wide: true, value: (row) => row.until || "no end"},
    {title: "Terms", wide: true, value: (row) => row.terms.map((term) => term.kind.replace("_", " ")).join(", ")},
  ],
  Details: ({row}) => html`<${Fields} of=${{provider: row.provider, since: row.since, until: row.until || "no end", currency: row.currency, id: row.id}} />
    <h3>Terms</h3><ul>${row.terms.map((term) => html`<li key=${termLine(term)}><code>${termLine(term)}</code></li>`)}</ul>`,
  create: {title: "Create a contract", needs, fields: () => fields({}), run: (_, given) => send("POST", PATH, typed(given)).then(offer("The contract is created."))},
  actions: [
    {title: "Edit", needs, fields, run: (row, given) => send("PATCH", at(row.id), {...typed(given), version: row.version})
      .then(offer("The contract is changed.", row.since))},
    {title: "Delete", needs, danger: true, text: () => "New calls are estimated at the price list. Earlier calls keep their estimates until they are recalculated.",
      run: (row) => send("DELETE", at(row.id)).then(() => null)},
  ],
  empty: html`<h2>No contracts yet</h2><p>A contract states what you agreed with a provider: a discount, the price of a service tier, or paid capacity such as PTUs. New calls are then estimated
    at these prices, and the comparison with bills names the contract. For seats of assistants, use <a href=${to("/plans")}>Plans</a>.</p>`,
};

export function Page(given) {
  return html`<${Month} ...${given} /><h2>All contracts</h2><${ListPage} list=${LIST} ...${given} />`;
}
