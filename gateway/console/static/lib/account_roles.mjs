/** The role of an account: what people read, for the words of the API. The built-in roles have the same names. */
const NAMES = {viewer: "Member", operator: "Operator", admin: "Organizer", none: "none"};

export const roleName = (word) => NAMES[word] ?? word;

/** For a field to choose from: [word, title] of each. */
export const ROLES = Object.entries(NAMES);
