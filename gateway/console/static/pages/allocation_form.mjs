/** The form of a dimension: its source, and its groups with their costs. Checkboxes assign values to a group. */
import {get} from "../lib/api.mjs";
import {OTHER} from "../lib/chart.mjs";
import {NONE, knownDimensions, titleOf} from "../lib/dimensions.mjs";
import {money, sum} from "../lib/format.mjs";
import {html, useEffect, useRef, useState} from "../lib/html.mjs";
import {Copy, Loading, Problem} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {blocksOf, dimensionOf, keyFor, withDimension} from "./allocation_text.mjs";

const NEW = "";
const OWN = "User:Defined:";
const MOST = 200; // number of values listed, the most expensive first
const RANGE = "last_90d";
const EMPTY = {key: NEW, name: "", source: "team", fallback: "", groups: [{name: "", values: []}], others: false};

async function valuesOf(source) {
  const {rows} = await get("/report", {by: source, range: RANGE, show: "cost", top: MOST});
  return rows.map((row) => ({value: row[source], cost: row.cost})).filter(({value}) => value && value !== OTHER)
    .sort((one, other) => Number(other.cost) - Number(one.cost));
}

const isWhole = ({name, groups, others}) => name.trim() && (others || groups.some(({values}) => values.length))
  && groups.every((group) => !group.values.length || group.name.trim());

/** The form. `text` is the definition. Each edit calls `change` with the new definition. */
export function DimensionForm({text, change}) {
  const written = useRef(text);
  const [draft, setDraft] = useState(() => firstOf(text));
  const [chosen, setChosen] = useState(0); // index of the group that ticked values join
  const blocks = blocksOf(text);
  const known = useQuery(() => knownDimensions(), []);
  const values = useQuery(() => valuesOf(draft.source), [draft.source]);
  useEffect(() => {
    if (text === written.current) return;
    written.current = text; // somebody edited the YAML or published
    setDraft(firstOf(text, draft.key));
  }, [text]);
  if (!blocks) return html`<p class="faint">The form cannot show this definition. Edit its YAML under Advanced.</p>`;
  const dimensions = blocks.map(dimensionOf);
  const edit = (changes) => {
    const next = {...draft, ...changes};
    if (!next.key && next.name.trim()) next.key = keyFor(next.name, blocks.map(({key}) => key));
    setDraft(next);
    if (!isWhole(next)) return;
    written.current = withDimension(text, next);
    change(written.current);
  };
  const open = (key) => {
    setChosen(0);
    setDraft(dimensions.find((each) => each?.key === key) ?? EMPTY);
  };
  const group = (place, changes) => edit({groups: draft.groups.map((each, number) => (number === place ? {...each, ...changes} : each))});
  const tick = (value) => {
    const isIn = draft.groups[chosen]?.values.includes(value);
    const without = draft.groups.map((each) => ({...each, values: each.values.filter((one) => one !== value)}));
    const added = (each) => ({name: each.name || value, values: [...each.values, value]});
    edit({name: draft.name || titled(draft.source), groups: isIn ? without : without.map((each, place) => (place === chosen ? added(each) : each))});
  };
  const byHand = blocks.filter((_, place) => !dimensions[place]).map(({key}) => key);
  return html`<div class="bar">
      <label>Dimension <select value=${draft.key} onChange=${(event) => open(event.target.value)}><option value=${NEW}>a new one</option>
        ${draft.key && !dimensions.some((each) => each?.key === draft.key) && html`<option value=${draft.key}>${draft.name}</option>`}
        ${dimensions.filter(Boolean).map(({key, name}) => html`<option key=${key} value=${key}>${name}</option>`)}</select></label>
      <label>Name <input value=${draft.name} placeholder="Product" onInput=${(event) => edit({name: event.target.value})} /></label>
      <label>Source <select value=${draft.source} onChange=${(event) => edit({source: event.target.value, groups: draft.groups.map((each) => ({...each, values: []}))})}>
        ${[...new Set([draft.source, ...(known.data ?? NONE).names.filter((name) => !name.startsWith(OWN))])].map((name) => html`<option key=${name} value=${name}>${titleOf(known.data?.titles, name)}</option>`)}</select></label>
      <label>Name for everything else <input value=${draft.fallback} placeholder="unknown" onInput=${(event) => edit({fallback: event.target.value})} /></label>
      <label class="check"><input type="checkbox" checked=${draft.others} onChange=${(event) => edit({others: event.target.checked})} /> Keep other values under their own names</label></div>
    ${byHand.length > 0 && html`<p class="faint">The form cannot show these dimensions, because they use other rules: ${byHand.join(", ")}. It does not change them.</p>`}
    <${Problem} error=${values.error ?? known.error} retry=${values.reload} />
    <div class="lists"><section aria-label="Groups"><h2>Groups</h2><ul class="groups">${draft.groups.map((each, place) => html`<li key=${place}>
        <label class="check"><input type="radio" name="group" aria-label=${`Tick into group ${place + 1}`} checked=${place === chosen} onChange=${() => setChosen(place)} /></label>
        <input aria-label=${`Name of group ${place + 1}`} value=${each.name} placeholder="Name of the group" onFocus=${() => setChosen(place)} onInput=${(event) => group(place, {name: event.target.value})} />
        <span class="number">${money(costOf(each.values, values.data))}</span></li>`)}</ul>
      <button type="button" onClick=${() => {
        setChosen(draft.groups.length);
        setDraft({...draft, groups: [...draft.groups, {name: "", values: []}]});
      }}>Add a group</button></section>
      <section aria-label="Values"><h2>Values of ${draft.source} <span class="faint">last 90 days</span></h2>
        <${Loading} of=${values}>${values.data?.length === 0 && html`<p class="faint">No call has a value.</p>`}
        <ul class="values">${values.data && listed(draft, values.data).map(({value, cost}) => {
          const place = draft.groups.findIndex((each) => each.values.includes(value));
          return html`<li key=${value}><label class="check"><input type="checkbox" checked=${place >= 0} onChange=${() => tick(value)} /> ${value}</label>
            <span class="faint">${place >= 0 && (draft.groups[place].name || `group ${place + 1}`)}</span> <span class="number">${cost ? money(cost) : "–"}</span></li>`;
        })}</ul><//></section></div>
    <${Tags} names=${(known.data ?? NONE).names} />`;
}

/** Derive a dimension's name from its source. */
const titled = (source) => source.replace(/^tag:/, "").replace(/^./, (first) => first.toUpperCase());

/** Return the dimension with this key, or else the first dimension that the form can show, or else a new dimension. */
function firstOf(text, key) {
  const found = (blocksOf(text) ?? []).map(dimensionOf).filter(Boolean);
  return found.find((each) => each.key === key) ?? found[0] ?? EMPTY;
}

/** List the values of calls, then selected values that no call has. */
function listed({groups}, values) {
  const names = new Set(values.map(({value}) => value));
  const gone = groups.flatMap((each) => each.values).filter((value) => !names.has(value));
  return [...values, ...gone.map((value) => ({value}))];
}

const costOf = (ticked, values) => sum((values ?? []).filter(({value}) => ticked.includes(value)).map(({cost}) => cost));

/** Instructions for a tag that totals do not store yet. */
function Tags({names}) {
  const [tag, setTag] = useState("");
  const kept = names.filter((name) => name.startsWith("tag:")).map((name) => name.slice(4));
  const line = `[ledger]\ntags = ${JSON.stringify([...kept, tag.trim() || "product"])}`;
  return html`<details><summary>A tag is missing?</summary><p>Totals store only the tags listed in <code>[ledger] tags</code>. Add the tag to the configuration and restart Tollhouse. Earlier totals do not get it.</p>
    <label>Tag <input value=${tag} placeholder="product" onInput=${(event) => setTag(event.target.value)} /></label>
    <${Copy} label="the setting" text=${line} /></details>`;
}
