/** The operator API, under the address at which the page itself was found. */

export class ApiError extends Error {
  constructor(status, type, message, faults) {
    super(message);
    this.status = status;
    this.type = type;
    this.faults = faults;
  }
}

let csrf = null;

/** The token that goes with every change, from the session. */
export const useToken = (token) => {
  csrf = token;
};

export const get = (path, parameters = {}) => ask("GET", path + asQuery(parameters));

export const send = (method, path, body) => ask(method, path, body);

function asQuery(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined) query.append(name, each);
  }
  return query.size ? `?${query}` : "";
}

/** Whether the page shows the demo month, which lies one folder below and answers reads of costs and calls alone. */
export const isDemo = location.pathname.endsWith("/demo/");
const OF_ALL = /^\/(session|sign-in|oidc|changes|demo)/;
const at = (path) => (isDemo ? `../api${OF_ALL.test(path) ? "" : "/demo"}${path}` : `api${path}`);

/** Where a call's answer is found by other programs. */
export const addressOf = (path, parameters = {}) => new URL(at(path) + asQuery(parameters), document.baseURI).href;

async function ask(method, path, body) {
  const headers = {Accept: "application/json"};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && csrf) headers["X-CSRF-Token"] = csrf;
  let answer;
  try {
    answer = await fetch(at(path), {method, headers, body: body && JSON.stringify(body), credentials: "same-origin"});
  } catch {
    throw new ApiError(0, "unreachable", "Tollhouse does not answer. Is it running, and are you on its network?");
  }
  const payload = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const error = payload.error ?? {type: "unknown", message: `Tollhouse answered ${answer.status}`};
    if (answer.status === 401 && path !== "/sessions") dispatchEvent(new CustomEvent("signed-out"));
    throw new ApiError(answer.status, error.type, error.message, payload.errors);
  }
  return payload;
}
