/** What costs are told apart by. */
import {get} from "./api.mjs";
import {day} from "./range.mjs";

export const NONE = {names: [], titles: {}};

/** {names, titles}: those that can be asked for, and what published ones are called. */
export async function knownDimensions() {
  const {report} = await get("/report", {from: day(new Date()), show: "calls"});
  return {names: report.dimensions, titles: report.names};
}

/** One model is one row, whatever prefix or date it came with, and so is one provider. How each was written is a dimension of its own. */
export const FAMILY = "model_family";
export const WRITTEN = {[FAMILY]: "model", provider_family: "provider"};
export const OWN_TITLES = {[FAMILY]: "model", model: "model spelling", provider_family: "provider", provider: "provider spelling"};

/** How a dimension is called: a published one by its name, any other as costs know it. */
export const titleOf = (titles, name) => OWN_TITLES[name] ?? titles?.[name] ?? name;

/** For a field of a dialog that chooses one. */
export const choices = ({names, titles}) => names.map((name) => [name, titleOf(titles, name)]);
