/** The options of a FOCUS file: its days, its version, and which costs it has. */
import {addressOf} from "./api.mjs";
import {html, useState} from "./html.mjs";
import {Dialog} from "./parts.mjs";

const VERSIONS = ["1.2", "1.3", "1.4", "1.5"];
const WHAT = [["plans", "Seats of plans, for whole months"], ["lines", "A row per price line"], ["billed", "Final bills of providers instead of counted costs"]];
const isFirst = (day) => day.endsWith("-01");

/** Return why there is no such file, or "". */
function problemOf({from: first, to: last, plans}) {
  if (!first || !last || last < first) return "Choose a first day and a later last day.";
  const next = new Date(Date.parse(last) + 86400000).toISOString().slice(0, 10);
  return plans && !(isFirst(first) && isFirst(next)) ? "Plans need whole months: choose the first and the last day of a month." : "";
}

export function FocusOptions({close, ...days}) {
  const [chosen, setChosen] = useState({...days, version: VERSIONS[0]});
  const set = (name, value) => setChosen({...chosen, ...(name === "billed" && {plans: undefined, lines: undefined}), [name]: value || undefined});
  const problem = problemOf(chosen);
  const dated = (name, label) => html`<label>${label} <input type="date" value=${chosen[name]} required onInput=${({target}) => set(name, target.value)} /></label>`;
  return html`<${Dialog} title="FOCUS options" close=${close}><form>
    ${dated("from", "First day (UTC)")}${dated("to", "Last day")}
    <label>Version <select onChange=${({target}) => set("version", target.value)}>${VERSIONS.map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
    ${WHAT.map(([name, label]) => html`<label key=${name} class="check"><input type="checkbox" checked=${Boolean(chosen[name])}
      disabled=${name !== "billed" && Boolean(chosen.billed)} onChange=${({target}) => set(name, target.checked && (name === "lines" ? "meters" : "true"))} /> ${label}</label>`)}
    <p role="status" class="faint">${problem}</p>
    ${!problem && html`<p><a class="button main" href=${addressOf("/focus", chosen)}>Download</a></p>`}</form><//>`;
}
