/** The form that maps a type of usage events to a unit-cost stream, with what the stored events would send. */
import {send} from "./api.mjs";
import {ago, exactCount} from "./format.mjs";
import {html, useState} from "./html.mjs";
import {Loading, Problem, Table} from "./parts.mjs";
import {useQuery} from "./query.mjs";

const NAMES = ["event_type", "stream", "value", "element", "type"];
const nothing = () => null;
const KINDS = [["allocation", "an amount for each element"], ["metric", "one amount"]];
const ROWS = [
  {title: "Arrived", value: (row) => ago(row.at)},
  {title: "Element", value: (row) => row.element ?? "–"},
  {title: "Amount", kind: "number", value: (row) => row.amount ?? "not sent"},
];

function MappingForm({value: row}) {
  const [draft, setDraft] = useState({event_type: row.event_type, stream: "preview", value: row.value ?? "", element: row.element ?? "subject", type: row.type ?? "allocation"});
  const found = useQuery(async () => (await send("POST", "/event-mappings/preview", draft)).preview, [JSON.stringify(draft)]);
  const {fields = [], events, sent, amount, rows = []} = found.data ?? {};
  const pick = (label, name, options) => {
    const offered = options.some(([value]) => value === draft[name]) ? options : [...options, [draft[name], draft[name]]];
    return html`<label>${label} <select name=${name} value=${draft[name]} onChange=${(event) => setDraft({...draft, [name]: event.target.value})}>${offered.map(([value, title]) => html`
      <option key=${value} value=${value} selected=${value === draft[name]}>${title}</option>`)}</select></label>`;
  };
  const named = ({name, example}) => [name, `${name} (such as ${example.slice(0, 30)})`];
  return html`<input type="hidden" name="event_type" value=${row.event_type} />
    <label>Stream <span class="faint">letters, digits, . _ and -</span><input name="stream" required autocomplete="off" defaultValue=${row.stream ?? row.event_type.replaceAll(/[^\w.-]/g, "_")} /></label>
    ${pick("Amount", "value", [["", "amount or value of the event, otherwise 1"], ["1", "1: count the events"], ...fields.filter(({numbers}) => numbers).map(named)])}
    ${pick("The stream contains", "type", KINDS)}
    ${draft.type === "allocation" && pick("Element", "element", [["subject", "subject of the event"], ["source", "source of the event"], ...fields.map(named)])}
    <fieldset><legend>Preview</legend><${Problem} error=${found.error} retry=${found.reload} />
      <${Loading} of=${found} blocks=${["line"]}>${found.data && html`<p role="status">${sent < events ? `${exactCount(sent)} of the newest ${exactCount(events)} stored events have an amount`
        : `All of the newest ${exactCount(events)} stored events have an amount`}${draft.type === "allocation" && " and an element"}: ${exactCount(amount)} in total.</p>
      ${rows.length > 0 && html`<${Table} caption="Newest events as they would be sent" columns=${ROWS} rows=${rows} identity=${(row) => row.at} />`}`}<//></fieldset>`;
}

/** Build the fields of a mapping. The first one draws the whole form. */
export const mappingFields = (row) => NAMES.map((name, place) => ({name, type: place ? nothing : MappingForm, value: row}));

export const typedMapping = (given) => Object.fromEntries(Object.entries(given).filter(([, [value]]) => value !== undefined).map(([name, [value]]) => [name, value.trim()]));
