/** Names of account roles that people read, by the API's values. The built-in roles have the same names. */
const NAMES = {viewer: "Member", operator: "Operator", admin: "Admin", none: "none"};

export const roleName = (word) => NAMES[word] ?? word;

/** The API names one built-in role "Organizer"; people read "Admin". */
export const builtinName = (name) => (name === "Organizer" ? NAMES.admin : name);

/** Choices for a select field: [value, label]. */
export const ROLES = Object.entries(NAMES);
