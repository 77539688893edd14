/** Records as they are stored, newest first. New rows wait while somebody reads, so that no row moves under the pointer. */
import {to} from "../lib/address.mjs";
import {addressOf, get} from "../lib/api.mjs";
import {html, useEffect, useRef, useState} from "../lib/html.mjs";
import {exactCount} from "../lib/format.mjs";
import {Filters} from "../lib/filters.mjs";
import {isBusy, useLiveState} from "../lib/live.mjs";
import {Problem, State, Table} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {COLUMNS, toRecord} from "./calls.mjs";

const PATH = "/tail";
const MOST = 200;
const EVERY_MS = 500;
const columns = COLUMNS.map(({sort, ...column}) => column);

export function Page({query}) {
  const filters = [...query].filter(([name]) => !["from", "to", "view"].includes(name));
  const fields = useQuery(() => get("/records", {limit: 1}), []);
  const isPaused = useLiveState() === "paused";
  const [rows, setRows] = useState([]);
  const [state, setState] = useState({word: "connecting", waiting: 0, skipped: 0});
  const arrived = useRef([]);
  const change = (part) => setState((before) => ({...before, ...part}));
  const show = () => {
    const found = arrived.current;
    arrived.current = [];
    if (found.length) setRows((before) => [...found, ...before].slice(0, MOST));
    change({waiting: 0});
  };
  const asText = new URLSearchParams([...filters, ...[...query].filter(([name]) => name === "view")]).toString();
  useEffect(() => {
    arrived.current = [];
    setRows([]);
  }, [asText]);
  useEffect(() => {
    if (isPaused) {
      change({word: "paused"});
      return undefined;
    }
    const stream = new EventSource(`${addressOf("/tail")}?${asText}`);
    stream.onopen = () => change({word: "live"});
    stream.onerror = () => change({word: "not live"});
    stream.addEventListener("record", (event) => {
      arrived.current = [JSON.parse(event.data), ...arrived.current].slice(0, MOST);
    });
    stream.addEventListener("skipped", (event) => setState((before) => ({...before, skipped: before.skipped + JSON.parse(event.data).records})));
    const timer = setInterval(() => (isBusy() || document.hidden ? change({waiting: arrived.current.length}) : arrived.current.length && show()), EVERY_MS);
    return () => {
      stream.close();
      clearInterval(timer);
    };
  }, [asText, isPaused]);
  const at = (changes) => to(PATH, {...Object.fromEntries(filters.map(([name]) => [name, query.getAll(name)])), ...changes});
  return html`
    <${Problem} error=${fields.error} retry=${fields.reload} />
    <div class="bar">${fields.data && html`<${Filters} available=${fields.data.filtering.available.filter(({field}) => field !== "view")} filters=${filters} at=${at} />`}
      <${State} word=${state.word} />
      <button type="button" disabled=${!state.waiting} onClick=${show}>Show ${exactCount(state.waiting)} new</button></div>
    ${rows.length ? html`<${Table} caption="Records as they arrive" columns=${columns} rows=${rows} href=${toRecord}
      identity=${(row) => `${row.topic} ${row.number ?? row.id}`} />`
      : html`<section><p>New records appear here as soon as they are stored on disk.</p></section>`}
    <p class="faint">The page shows the newest ${MOST} records. In a terminal, use <code>tollhouse tail</code>.
      ${state.skipped > 0 && html` ${exactCount(state.skipped)} records were skipped, because they arrived too fast to be shown.`}</p>`;
}
