/**
 * Two questions on the shown costs: why they changed since an earlier period, and what the calls would have cost with another model.
 */
import {go, here} from "./address.mjs";
import {addressOf, get} from "./api.mjs";
import {nameOf} from "./chart.mjs";
import {titleOf} from "./dimensions.mjs";
import {count, exactCount, money, percent} from "./format.mjs";
import {html, useState} from "./html.mjs";
import {Loading, Problem, Table, amount} from "./parts.mjs";
import {useQuery} from "./query.mjs";

/** The section of a question, drawn by `draw` from the answer of `path`. `label` names it, and `json` its link. */
function Question({label, title, path, asked, json, draw}) {
  const found = useQuery(() => get(path, asked), [JSON.stringify(asked)], ["ledger"]);
  return html`<section aria-label=${label}><h2>${title}</h2>
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${found.data && html`${draw(found.data)}
      <p class="bar"><span class="faint">The same data:</span> <a href=${addressOf(path, asked)}>${json}</a></p>`}<//></section>`;
}

/** The columns with the names of a group. The last row has the total. */
const groups = (by, names) => by.map((field, place) => (
  {title: titleOf(names, field), kind: "text", value: (row) => (row.isTotal ? !place && "Total" : nameOf(row[field]))}));

const identityBy = (by) => (row) => JSON.stringify(by.map((field) => row[field]));

// -- why costs changed ----------------------------------------------------------------------------------------

const PARTS = {
  more_calls: ["More calls", "at the earlier cost per call"],
  larger_calls: ["Larger calls", "more tokens per call, at the earlier cost per token"],
  other_kinds: ["Other models or token types", "at the earlier price of each"],
  prices: ["Prices", "the same token of the same model costs more or less"],
  new: ["New", "groups without calls in the earlier period"],
  gone: ["Ended", "groups without calls now"],
};
const USUAL = "same_weekdays";
const TIMES = {[USUAL]: "the same weekdays", previous: "the previous period", last_month: "last month", last_30d: "the last 30 days"};
const TOP = 20;

const signed = (text) => `${Number(text) > 0 ? "+" : ""}${money(text)}`;
const days = ({from, to: until}) => `${from.slice(0, 16).replace("T", " ")} to ${until.slice(0, 16).replace("T", " ")}`;

/** A picker for the period to compare with, with two date fields for any days. */
export function AgainstPicker({query}) {
  const [isOwn, setOwn] = useState(false);
  const now = query.get("against") ?? "";
  const choose = (against) => go(here({against}));
  const chosen = (event) => (event.target.value === "own" ? setOwn(true) : choose(event.target.value));
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setOwn(false);
    choose(`${form.get("first")}..${form.get("last")}`);
  };
  const [first, last] = now.split("..");
  return html`<label>Explain the change since <select value=${now && !TIMES[now] ? "own" : now} onChange=${chosen}>
      <option value="">(off)</option>
      ${Object.entries(TIMES).map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}
      <option value="own">${now && !TIMES[now] ? now.replace("..", " to ") : "Choose days ..."}</option></select></label>
    ${(isOwn || (now && !TIMES[now])) && html`<form class="filters" onSubmit=${submit}>
      <input type="date" name="first" aria-label="First day of the earlier period" defaultValue=${last ? first : ""} required />
      <input type="date" name="last" aria-label="Last day of the earlier period" defaultValue=${last ?? ""} required />
      <button type="submit">Compare</button></form>`}`;
}

/** One sentence that explains the difference from the same weekdays earlier. Empty if the comparison fails. */
export function Why({parameters}) {
  const asked = {...parameters, against: USUAL, top: 3};
  const {data, error} = useQuery(() => get("/comparison", asked), [JSON.stringify(asked)], ["ledger"]);
  if (error) return null; // the table below shows its own error
  if (!data) return html`<p class="faint">Comparing with the same weekdays ...</p>`;
  return html`<p><strong>${data.comparison.sentence}</strong> <span class="faint">Compared with ${days(data.comparison.against)}.</span>
    ${" "}<a href=${here({against: USUAL})}>All parts of the change</a></p>`;
}

/** The explanation of a change. `parameters`: range, filters and `by` of the page. `href(row)`: the link of a group; (other) has no link. */
export function WhatChanged({parameters, against, href}) {
  return html`<${Question} label="What changed" title="What changed" path="/comparison" asked=${{...parameters, against, top: TOP}} json="JSON of the change"
    draw=${(data) => html`<${Change} ...${data} href=${href} />`} />`;
}

function Change({comparison, rows, total, href}) {
  const part = (title, of, write = signed) => ({title, kind: "number", value: (row) => write(of(row)), exact: (row) => `$${of(row)}`});
  const columns = [
    ...groups(comparison.by, comparison.names),
    part("Cost", (row) => row.cost, money),
    part("Before", (row) => row.against.cost, money),
    part("Change", (row) => row.change),
    ...Object.entries(PARTS).map(([name, [title]]) => part(title, (row) => row[name])),
  ];
  const unpriced = total.unpriced + total.against.unpriced;
  return html`
    <p><strong>${comparison.sentence}</strong></p>
    <p>${days(comparison)}: ${money(total.cost)}; ${days(comparison.against)}: ${money(total.against.cost)}.
      ${" "}Estimated share: ${percent(total.estimated, total.cost)}, earlier ${percent(total.against.estimated, total.against.cost)}.
      ${unpriced > 0 && html` ${count(unpriced)} calls have no price and are missing from the totals.`}
      ${comparison.whole_since && html` Totals before ${comparison.whole_since.slice(0, 10)} may lack calls.`}</p>
    <dl class="numbers"><div><dt>Change</dt><dd title=${`$${total.change}`}>${signed(total.change)}</dd></div>
      ${Object.entries(PARTS).map(([part, [title, what]]) => html`<div key=${part}><dt>${title}</dt><dd title=${`$${total[part]}`}>${signed(total[part])}</dd>
        <dd class="faint">${what}</dd></div>`)}</dl>
    ${rows.length === 0 ? html`<p>No calls in either period.</p>` : html`<${Table} caption="What drives the change" columns=${columns} rows=${rows}
      foot=${{...total, isTotal: true}} identity=${identityBy(comparison.by)}
      href=${href} />`}`;
}

// -- what another model would have cost ------------------------------------------------------------------------

/** A field for the other model. It offers `models`, and any other name can be typed. */
export function WhatIfPicker({query, models, load}) {
  const submit = (event) => {
    event.preventDefault();
    go(here({asif: new FormData(event.currentTarget).get("model").trim()}));
  };
  const now = query.get("asif") ?? "";
  return html`<form class="filters" onSubmit=${submit}><label>Cost if all calls used <input key=${now} name="model" list="models" defaultValue=${now}
    placeholder="a model" autocomplete="off" onFocus=${load} /></label>
    <datalist id="models">${models.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <button type="submit">Calculate</button>
    ${now && html` <a href=${here({asif: ""})}>(off)</a>`}</form>`;
}

/** The estimate for another model. `parameters`: range, filters and `by` of the page. `href(row)`: the link of a group; (other) has no link. */
export function WhatIf({model, parameters, names, href}) {
  return html`<${Question} label="As if" title=${`Cost if all of these calls used ${model}`} path="/what-if" asked=${{...parameters, model}} json="JSON"
    draw=${(data) => html`<${Answer} ...${{...data, names, href}} />`} />`;
}

function Answer({what_if: estimate, rows, total, names, href}) {
  const columns = [
    ...groups(estimate.by, names),
    {title: "Calls", kind: "number", value: (row) => exactCount(row.calls)},
    amount("Cost", "cost"), amount(`Cost with ${estimate.model}`, "as_if"), amount("Savings", "saves"),
  ];
  const costsMore = estimate.saves_a_month.startsWith("-");
  return html`
    <p><strong>${money(total.cost)} would have been ${money(total.as_if)}: ${costsMore ? `${money(estimate.saves_a_month.slice(1))} more` : `${money(estimate.saves_a_month)} less`} a month at this rate.</strong></p>
    <p class="faint">Assumes: ${estimate.assumptions.join(" ")} Days are in UTC, ${estimate.from} to ${estimate.to}.
      ${Number(total.unchanged) > 0 && ` ${money(total.unchanged)} has no list price now, so it stays unchanged.`}
      ${Number(estimate.left_out) > 0 && ` Not included, because the groups are small: ${money(estimate.left_out)}.`}</p>
    ${rows.length > 0 && html`<${Table} caption="Cost with another model, by group" columns=${columns} rows=${rows} foot=${{...total, isTotal: true}}
      identity=${identityBy(estimate.by)} href=${href} />`}`;
}
