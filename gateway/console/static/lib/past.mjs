/** The time that the whole Costs page is compared with, its picker and its sentence, and the picker of another model. */
import {go, here} from "./address.mjs";
import {get} from "./api.mjs";
import {dayText, timeText} from "./format.mjs";
import {html, useState} from "./html.mjs";
import {Drivers} from "./parts.mjs";
import {useQuery} from "./query.mjs";

export const NOTHING = "none";
export const PASTS = {previous: "the previous period", same_weekdays: "the same weekdays before", last_month: "last month", last_quarter: "last quarter"};

/** Return the time to compare with, for the address and the range that it names. */
export const pastOf = (query, {asked}) => query.get("against") || usual(asked);
/** Return the usual time to compare with: the same weekdays, but the period before for months, quarters and years. */
const usual = (asked) => (/-(month|quarter|year)$/.test(asked) ? "previous" : "same_weekdays");

/** The amount of the range that is not compared, such as that of the running hour. Empty if the range ends with a full hour. */
export const Uncompared = ({compared, write}) => compared?.since_cut && html`<span class="faint"> +${write(compared.since_cut)} since ${timeText(compared.now.to)}, not compared.${compared.rest && ` ${compared.rest}.`}</span>`;

/** A picker for the time that everything on the page is compared with, with two date fields for any days. */
export function PastPicker({query, range}) {
  const [isOwn, setOwn] = useState(false);
  const now = pastOf(query, range);
  const isRange = now.includes("..");
  const choose = (against) => go(here({against: against === usual(range.asked) ? "" : against, ...(against === NOTHING && {parts: ""})}));
  const chosen = (event) => (event.target.value === "own" ? setOwn(true) : choose(event.target.value));
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setOwn(false);
    choose(`${form.get("first")}..${form.get("last")}`);
  };
  const [first, last] = isRange ? now.split("..") : [];
  return html`<label>Compare with <select value=${isRange ? "own" : now} onChange=${chosen}>
      ${Object.entries(PASTS).map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}
      ${!isRange && !PASTS[now] && now !== NOTHING && html`<option value=${now}>${now.replaceAll("_", " ")}</option>`}
      <option value="own">${isRange ? now.replace("..", " to ") : "Choose days ..."}</option><option value=${NOTHING}>nothing</option></select></label>
    ${(isOwn || isRange) && html`<form class="filters" onSubmit=${submit}>
      <input type="date" name="first" aria-label="First day of the earlier period" defaultValue=${first} required />
      <input type="date" name="last" aria-label="Last day of the earlier period" defaultValue=${last} required />
      <button type="submit">Compare</button></form>`}`;
}

/** Why nothing is compared, with the longest range that can be compared. Empty if the past is whole, or if nothing is known. */
export function NoPast({past, isBilled}) {
  if (past?.begins_at) return html`<span>Too early; the comparison begins at ${timeText(past.begins_at)}.</span>`;
  if (!past?.known_from || past.state === "whole") return null;
  const many = past.comparable_days;
  return html`<span>${isBilled ? "Bills begin" : "Counting began"} on ${dayText(past.known_from)}, so there is nothing to compare with.</span>
    ${many > 1 && html` <a href=${here({from: `now-${many}d`, to: "", against: "previous", parts: ""})}>Compare the last ${many} days</a>.`}`;
}

/** What changed the cost most since the earlier time, or the costs a day if the times differ in length. Empty if the comparison fails. */
export function Why({parameters, against, write, href}) {
  const asked = {...parameters, against, top: 3};
  const {data, error} = useQuery(() => get("/comparison", asked), [JSON.stringify(asked)], ["ledger"]);
  if (error) return null; // the table below shows its own error
  if (!data) return html`<p role="status">Comparing ...</p>`;
  const {comparison: {sentence, drivers}, total} = data;
  return html`${total.change === null && html`<strong>${sentence}</strong>`}<${Drivers} ...${{drivers, write, href}} all=${here({parts: "1"})} />`;
}

/** A field for the other model. It offers `models`, and any other name can be typed. */
export function WhatIfPicker({query, models, load}) {
  const submit = (event) => {
    event.preventDefault();
    go(here({asif: new FormData(event.currentTarget).get("model").trim()}));
  };
  const now = query.get("asif") ?? "";
  return html`<form class="filters" onSubmit=${submit}><label>If all ran on <input key=${now} name="model" list="models" defaultValue=${now}
    placeholder="a model" autocomplete="off" onFocus=${load} /></label>
    <datalist id="models">${models.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <button type="submit">Calculate</button>
    ${now && html` <a href=${here({asif: ""})}>(off)</a>`}</form>`;
}
