/** Search by name over values of calls, keys, views and budgets that the session may see. */
import {to} from "./address.mjs";
import {get} from "./api.mjs";
import {OTHER} from "./chart.mjs";
import {FAMILY} from "./dimensions.mjs";
import {html} from "./html.mjs";
import {Dialog, may} from "./parts.mjs";
import {useQuery} from "./query.mjs";

const OF_CALLS = {team: "Teams", user: "Users", [FAMILY]: "Models", sender: "Senders"};
const LISTS = [["keys", "API keys", "view_operation", "name"], ["views", "Views", "view_costs", "id"], ["budgets", "Budgets", "view_costs", "id"]];
const [MOST, ASKED] = [8, 1000]; // names shown, and names searched, of each kind
const RANGE = "last_90d";

/** Return names that begin with the word, then names that contain it. Ignores upper and lower case. */
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
  const all = await Promise.allSettled([...(may(session, "view_costs") ? calls : []), ...lists]); // requests that the person may not make are left out
  return all.filter(({status}) => status === "fulfilled").map(({value: [title, found]}) => [title, matching(found, word)])
    .filter(([, found]) => found.length);
}

/** A dialog with the search results. */
export function Found({word, session, close}) {
  const {data, error} = useQuery(() => load(word, session), [word]);
  return html`<${Dialog} title=${`Search: ${word}`} close=${close}>
    ${!data && !error && html`<p role="status">Loading ...</p>`}
    ${data?.length === 0 && html`<p role="status">No name of the last 90 days contains "${word}". You can also search for the
      full id of a record, a value such as <code>team:NAME</code>, or calls by <code>cost>0.5</code>.</p>`}
    ${data?.map(([title, found]) => html`<h3 key=${title}>${title}</h3><ul>${found.map(({name, href}) => html`<li key=${href}><a href=${href}
      onClick=${close}>${name}</a></li>`)}</ul>`)}<//>`;
}
