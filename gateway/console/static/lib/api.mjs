/** Requests to the operator API. Its address is relative to the console's own. */

export class ApiError extends Error {
  constructor(status, type, message, faults, retryAfterS = null) {
    super(message);
    this.retryAfterS = retryAfterS; // when the same request may succeed
    this.status = status;
    this.type = type;
    this.faults = faults;
  }
}

let csrf = null;

/** Set the session's CSRF token, which every change sends. */
export const useToken = (token) => {
  csrf = token;
};

export const get = (path, parameters = {}) => request("GET", path + asQuery(parameters));

/** Send a change. `body`: an object, a form with files, or a blob with its type. */
export const send = (method, path, body) => request(method, path, body);

function asQuery(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined) query.append(name, each);
  }
  return query.size ? `?${query}` : "";
}

/** Whether the page shows the demo month. Its address is one folder deeper, and it answers only reads of costs and calls. */
export const isDemo = location.pathname.endsWith("/demo/");
const OF_ALL = /^\/(session|sign-in|oidc|changes|demo)/;
const at = (path) => (isDemo ? `../api${OF_ALL.test(path) ? "" : "/demo"}${path}` : `api${path}`);

/** Return the full address of an API path, for links and other programs. */
export const addressOf = (path, parameters = {}) => new URL(at(path) + asQuery(parameters), document.baseURI).href;

async function request(method, path, body) {
  const headers = {Accept: "application/json"};
  const isRaw = body instanceof FormData || body instanceof Blob; // the browser states its type
  if (body !== undefined && !isRaw) headers["Content-Type"] = "application/json";
  if (method !== "GET" && csrf) headers["X-CSRF-Token"] = csrf;
  let answer;
  try {
    answer = await fetch(at(path), {method, headers, body: isRaw ? body : body && JSON.stringify(body), credentials: "same-origin"});
  } catch {
    throw new ApiError(0, "unreachable", "Tollhouse does not respond. Check that it is running and that you are on its network.");
  }
  const payload = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const error = payload.error ?? {type: "unknown", message: `Tollhouse returned the status ${answer.status}.`};
    if (answer.status === 401 && path !== "/sessions") dispatchEvent(new CustomEvent("signed-out"));
    const retryAfterS = Number(answer.headers.get("Retry-After")) || null;
    throw new ApiError(answer.status, error.type, error.message, payload.errors, retryAfterS);
  }
  return payload;
}
