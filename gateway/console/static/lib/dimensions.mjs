/** The dimensions by which costs can be grouped and filtered. */
import {to} from "./address.mjs";
import {get} from "./api.mjs";
import {day} from "./range.mjs";

export const NONE = {names: [], titles: {}};

/** Fetch {names, titles}: the ids of all dimensions, and the names of published dimensions. */
export async function knownDimensions() {
  const {report} = await get("/report", {from: day(new Date()), show: "calls"});
  return {names: report.dimensions, titles: report.names};
}

/** Dimensions that join all variants of one model or provider. The variants themselves are other dimensions. */
export const FAMILY = "model_family";
export const WRITTEN = {[FAMILY]: "model", provider_family: "provider"};
const TITLES = {[FAMILY]: "model", model: "model variant", request_model: "requested model", provider_family: "provider", provider: "provider variant", run: "agent run",
  sender: "Tollhouse key", api_key: "gateway's own key"};

/** Units of work. They have no costs per hour. */
export const WORK = ["session", "run", "repository", "branch", "commit", "pull_request", "ticket"];
const NOT_IN_VIEWS = ["session", "run", "branch", "commit"]; // there are too many for the filter of a view
const hasOne = (of, names) => names.some((each) => of.includes(each.replace(/!$/, "")));
export const hasWork = (names) => hasOne(WORK, names);
export const fitsView = (names) => !hasOne(NOT_IN_VIEWS, names);

/** The page that gives calls a value of a dimension, as [title, path]. */
const SET_UP = {session: ["How calls get sessions", "/work"], run: ["How calls get runs", "/work"], team: ["Assign teams", "/allocation"], user: ["Connect assistants", "/connect"]};
export const setUp = (name) => SET_UP[name] ?? (WORK.includes(name) ? ["Connect CI", "/work"] : ["Derive it from other dimensions", "/allocation"]);

/** Return the address of the page of one unit of work. `when`: its time range. */
export const toUnit = (unit, id, when) => to("/work", {unit, id, ...when});

/** Return the label of a dimension or a field: its own, the name of a published dimension, or its id in words. A tag keeps its key. */
export const titleOf = (titles, name) => TITLES[name] ?? titles?.[name] ?? (name && !name.startsWith("tag:") ? name.replaceAll("_", " ") : name);

/** Choices for a select field: [id, label]. */
export const choices = ({names, titles}) => names.map((name) => [name, titleOf(titles, name)]);
