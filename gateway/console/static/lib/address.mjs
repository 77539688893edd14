/** The address is the state: `#/costs?by=model` is a page and what it shows. */
import {useEffect, useState} from "./html.mjs";

/** The page's path and its parameters, as the address bar has them. */
export function read() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return {path: path.startsWith("/") ? path : "/", query: new URLSearchParams(query)};
}

/** An address of a page, for links; empty and missing parameters are left out. The view that is chosen goes along. */
export function to(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({view: read().query.get("view"), ...parameters})) {
    for (const each of [value].flat()) if (each !== "" && each !== null && each !== undefined) query.append(name, each);
  }
  return `#${path}${query.size ? `?${query}` : ""}`;
}

/** Pairs of names and values as {name: [values]}. */
export function grouped(pairs) {
  const found = {};
  for (const [name, value] of pairs) (found[name] ??= []).push(value);
  return found;
}

/** The address with `changes`, as it is when this is called: what is drawn may be older than it. */
export function here(changes) {
  const {path, query} = read();
  return to(path, {...grouped([...query]), ...changes});
}

/** Go there. `replaces`: without a step for the back button, as while typing. */
export function go(address, {replaces = false} = {}) {
  if (!replaces) {
    location.hash = address;
    return;
  }
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** What the address is now; draws again when it changes. */
export function useAddress() {
  const [at, setAt] = useState(read);
  useEffect(() => {
    const changed = () => setAt(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return at;
}
