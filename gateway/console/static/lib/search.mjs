/** What is called by a word: values of calls, keys, views and budgets, as far as the session may see them. */
import {to} from "./address.mjs";
import {get} from "./api.mjs";
import {OTHER} from "./chart.mjs";
import {FAMILY} from "./dimensions.mjs";
import {html} from "./html.mjs";
import {Dialog, may} from "./parts.mjs";
import {useQuery} from "./query.mjs";

const OF_CALLS = {team: "Teams", user: "Users", [FAMILY]: "Models", sender: "Senders"};
const LISTS = [["keys", "API keys", "view_operation", "name"], ["views", "Views", "view_costs", "id"], ["budgets", "Budgets", "view_costs", "id"]];
const [MOST, ASKED] = [8, 1000]; // shown of each kind, and looked through
const RANGE = "last_90d";

/** Names that begin with the word, then those that hold it; capitals do not matter. */
function matching(found, word) {
  const low = word.toLowerCase();
  const place = ({name}) => name.toLowerCase().indexOf(low);
  return found.filter((each) => place(each) >= 0).sort((one, other) => (place(one) > 0) - (place(other) > 0)).slice(0, MOST);
}

async function load(word, session) {
  const calls = Object.entries(OF_CALLS).map(async ([field, title]) => {
    const {rows} = await get("/report", {by: field, range: RANGE, show: "cost", top: ASKED});
    const names = rows.map((row) => row[field]).filter((name) => name && name !== OTHER);
    return [title, names.map((name) => ({name, href: to("/costs", {[field]: name, view: null, from: "now-90d"})}))];
  });
  const lists = LISTS.map(async ([path, title, needs, identity]) => {
    const rows = may(session, needs) ? (await get(`/${path}`, {limit: ASKED}))[path] : [];
    return [title, rows.map((row) => ({name: row.name, href: to(`/${path}`, {open: row[identity], view: null})}))];
  });
  const all = await Promise.allSettled([...(may(session, "view_costs") ? calls : []), ...lists]); // what is closed to somebody has no names
  return all.filter(({status}) => status === "fulfilled").map(({value: [title, found]}) => [title, matching(found, word)])
    .filter(([, found]) => found.length);
}

/** What was found for a word, or that nothing was. */
export function Found({word, session, close}) {
  const {data, error} = useQuery(() => load(word, session), [word]);
  return html`<${Dialog} title=${`Search: ${word}`} close=${close}>
    ${!data && !error && html`<p role="status">Loading ...</p>`}
    ${data?.length === 0 && html`<p role="status">Nothing called "${word}" was found among the names of the last 90 days. A record is found by its
      whole id, values by <code>team:NAME</code>, calls by <code>cost>0.5</code>.</p>`}
    ${data?.map(([title, found]) => html`<h3 key=${title}>${title}</h3><ul>${found.map(({name, href}) => html`<li key=${href}><a href=${href}
      onClick=${close}>${name}</a></li>`)}</ul>`)}<//>`;
}
