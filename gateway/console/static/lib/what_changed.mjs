/** What changed the costs since an earlier time: the parts of the change, and the groups that drive it. */
import {go, here} from "./address.mjs";
import {addressOf, get} from "./api.mjs";
import {nameOf} from "./chart.mjs";
import {titleOf} from "./dimensions.mjs";
import {count, money, percent} from "./format.mjs";
import {html, useState} from "./html.mjs";
import {Loading, Problem, Table} from "./parts.mjs";
import {useQuery} from "./query.mjs";

const PARTS = {
  more_calls: ["More calls", "at the old cost of a call"],
  larger_calls: ["Larger calls", "more tokens in each, at the old cost of a token"],
  other_kinds: ["Other models or kinds of tokens", "at the old price of each"],
  prices: ["Prices", "the same token of the same model costs more or less"],
  new: ["New", "groups without a call before"],
  gone: ["Gone", "groups without a call now"],
};
const USUAL = "same_weekdays";
const TIMES = {[USUAL]: "the same weekdays", previous: "the period before", last_month: "last month", last_30d: "the last 30 days"};
const TOP = 20;

const signed = (text) => `${Number(text) > 0 ? "+" : ""}${money(text)}`;
const days = ({from, to: until}) => `${from.slice(0, 16).replace("T", " ")} to ${until.slice(0, 16).replace("T", " ")}`;

/** Chooses the time to compare with; days of one's own in two fields. */
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
      <option value="own">${now && !TIMES[now] ? now.replace("..", " to ") : "Days ..."}</option></select></label>
    ${(isOwn || (now && !TIMES[now])) && html`<form class="filters" onSubmit=${submit}>
      <input type="date" name="first" aria-label="First day before" defaultValue=${last ? first : ""} required />
      <input type="date" name="last" aria-label="Last day before" defaultValue=${last ?? ""} required />
      <button type="submit">Compare</button></form>`}`;
}

/** Why the costs of a span differ from those of the same weekdays, in one sentence; nothing where that is not known. */
export function Why({parameters}) {
  const asked = {...parameters, against: USUAL, top: 3};
  const {data, error} = useQuery(() => get("/comparison", asked), [JSON.stringify(asked)], ["ledger"]);
  if (error) return null; // the table and its own error stand below
  if (!data) return html`<p class="faint">Comparing with the same weekdays ...</p>`;
  return html`<p><strong>${data.comparison.sentence}</strong> <span class="faint">Compared with ${days(data.comparison.against)}.</span>
    ${" "}<a href=${here({against: USUAL})}>All parts of the change</a></p>`;
}

/** `parameters` are those of the question: span, filters and `by`; `href` leads from a group further, from (other) nowhere. */
export function WhatChanged({parameters, against, href}) {
  const asked = {...parameters, against, top: TOP};
  const found = useQuery(() => get("/comparison", asked), [JSON.stringify(asked)], ["ledger"]);
  return html`<section aria-label="What changed"><h2>What changed</h2>
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${found.data && html`<${Change} ...${found.data} href=${href} />
      <p class="bar"><span class="faint">The same data:</span> <a href=${addressOf("/comparison", asked)}>JSON of the change</a></p>`}<//></section>`;
}

function Change({comparison, rows, total, href}) {
  const amount = (title, of, write = signed) => ({title, kind: "number", value: (row) => write(of(row)), exact: (row) => `$${of(row)}`});
  const columns = [
    ...comparison.by.map((field, place) => ({title: titleOf(comparison.names, field), kind: "text", value: (row) => (row.isTotal ? !place && "Total" : nameOf(row[field]))})),
    amount("Cost", (row) => row.cost, money),
    amount("Before", (row) => row.against.cost, money),
    amount("Change", (row) => row.change),
    ...Object.entries(PARTS).map(([part, [title]]) => amount(title, (row) => row[part])),
  ];
  const unpriced = total.unpriced + total.against.unpriced;
  return html`
    <p><strong>${comparison.sentence}</strong></p>
    <p>${days(comparison)}: ${money(total.cost)}; ${days(comparison.against)}: ${money(total.against.cost)}.
      ${" "}Estimated: ${percent(total.estimated, total.cost)}, before ${percent(total.against.estimated, total.against.cost)}.
      ${unpriced > 0 && html` ${count(unpriced)} calls have no price and are missing from the totals.`}
      ${comparison.whole_since && html` Sums of before ${comparison.whole_since.slice(0, 10)} may lack calls.`}</p>
    <dl class="numbers"><div><dt>Change</dt><dd title=${`$${total.change}`}>${signed(total.change)}</dd></div>
      ${Object.entries(PARTS).map(([part, [title, what]]) => html`<div key=${part}><dt>${title}</dt><dd title=${`$${total[part]}`}>${signed(total[part])}</dd>
        <dd class="faint">${what}</dd></div>`)}</dl>
    ${rows.length === 0 ? html`<p>Neither time has a call.</p>` : html`<${Table} caption="What drives the change" columns=${columns} rows=${rows}
      foot=${{...total, isTotal: true}} identity=${(row) => JSON.stringify(comparison.by.map((field) => row[field]))}
      href=${href} />`}`;
}
