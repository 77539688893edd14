/** The filters above a list of rows, and the links below it that give other programs the same data. */
import {go} from "./address.mjs";
import {addressOf} from "./api.mjs";
import {html, useState} from "./html.mjs";
import {titleOf as named} from "./dimensions.mjs";
import {Copy, Dialog} from "./parts.mjs";
import {stateName} from "./words.mjs";

export const AGES = ["1d", "3d", "7d", "30d", "90d"];

const labelOf = (field, value) => (field === "state" ? stateName(value) : value);

export const valuesOf = (filters, name) => filters.filter(([each]) => each === name).map(([, value]) => value);

/** Filters as chips that a click removes. `titleOf(name)` is the label of a field. */
export const Chips = ({filters, at, titleOf}) => filters.map(([name, value]) => html`<a key=${`${name}=${value}`} class="chip" title="Remove this filter"
  href=${at({[name]: valuesOf(filters, name).filter((each) => each !== value)})}>${titleOf(name)}: ${labelOf(name, value)} <span aria-hidden="true">✕</span></a>`);

/** Chips, and a form that adds a filter. */
export function Filters({titles = {}, ...given}) {
  const titleOf = (name) => given.available.find((each) => each.field === name)?.title ?? titles[name] ?? named(null, name);
  return html`<div class="filters"><${Chips} ...${given} titleOf=${titleOf} /><${AddFilter} ...${given} titleOf=${titleOf} /></div>`;
}

/** A form that adds a filter. `chose(field)` runs when somebody selects a field. */
export function AddFilter({available, filters, at, chose, hints = {}, titleOf}) {
  const [field, setField] = useState("");
  const chosen = available.find((each) => each.field === field);
  const valid = chosen && (chosen.valid_types?.[0] === "age" ? AGES : chosen.valid_values);
  const add = (value) => {
    setField("");
    if (value) go(at({[field]: [...new Set([...valuesOf(filters, field), value])]}));
  };
  const submit = (event) => {
    event.preventDefault();
    const typed = new FormData(event.currentTarget).get("value").trim();
    add(/^[0-9.]+$/.test(typed) && hints[field]?.startsWith(">") ? `>${typed}` : typed);
  };
  return html`<select aria-label="Add a filter" value=${field} onChange=${async (event) => {
      const name = event.target.value;
      await chose?.(name);
      setField(name);
    }}>
      <option value="">+ filter</option>${available.map((each) => html`<option key=${each.field} value=${each.field}>${titleOf(each.field)}</option>`)}</select>
    ${chosen && (valid.length
      ? html`<select aria-label=${`Value of ${field}`} value="" onChange=${(event) => add(event.target.value)}>
          <option value="">is ...</option>${valid.filter(Boolean).map((each) => html`<option key=${each} value=${each}>${labelOf(field, each)}</option>`)}</select>`
      : html`<form class="filters" onSubmit=${submit}><input name="value" aria-label=${`Value of ${field}`} placeholder=${hints[field]} autocomplete="off" />
          <button type="submit">Add</button></form>`)}`;
}

/** Links to the same data as JSON, CSV and a curl command, and more as children. `csv`: the link's title, and parameters only for all rows. */
export function Elsewhere({path, parameters, csv: {title = "CSV", ...more}, children}) {
  const [showsCurl, setShowsCurl] = useState(false);
  const address = addressOf(path, parameters);
  const {pathname, search} = new URL(address);
  return html`<p class="bar"><span class="faint">Download</span> <a class="button" href=${addressOf(path, {...parameters, ...more, format: "csv"})}>${title}</a>
    ${children} <a class="button" href=${address}>JSON</a>
    <button type="button" onClick=${() => setShowsCurl(true)}>curl</button>
    <button type="button" onClick=${() => print()}>Print</button>
    ${showsCurl && html`<${Dialog} title="The same data with curl" close=${() => setShowsCurl(false)}>
      <p>Run this on the gateway's machine, in the folder that contains the data directory. It needs no sign-in there.</p>
      <${Copy} label="the curl command"
        text=${`curl -gH 'X-Tollhouse-As: me' --unix-socket tollhouse-data/operator.sock 'localhost${pathname.replace(/^.*(?=\/console\/api)/, "")}${search}'`} /><//>`}</p>`;
}
