/** Words that people read, where they differ from the API's values. */

/** Account roles. The built-in roles have the same names. */
const ROLE_NAMES = {viewer: "Member", operator: "Operator", admin: "Admin", none: "none"};

export const roleName = (word) => ROLE_NAMES[word] ?? word;

/** The API names one built-in role "Organizer"; people read "Admin". */
export const builtinName = (name) => (name === "Organizer" ? ROLE_NAMES.admin : name);

/** Choices for a select field: [value, label]. */
export const ROLES = Object.entries(ROLE_NAMES);

const STATE_NAMES = {parked: "paused", refusing: "rejected", orphaned: "without a destination", silent: "offline", losing: "loses calls", delayed: "calls wait", unseen: "cannot be judged", missing: "never seen", copied: "copied disk", replaced: "installed again", dead: "rejected",
  exact: "certain", strong: "very likely", weak: "likely"};

export const stateName = (state) => STATE_NAMES[state] ?? String(state).replaceAll("_", " ");
