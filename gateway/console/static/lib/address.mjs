/** The address holds the console's state: `#/costs?by=model` names a page and what it shows. */
import {useEffect, useState} from "./html.mjs";

/** Return the page's path and its parameters from the address bar. */
export function read() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return {path: path.startsWith("/") ? path : "/", query: new URLSearchParams(query)};
}

/** Build the address of a page for a link. It keeps the chosen view and leaves out empty parameters. */
export function to(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({view: read().query.get("view"), ...parameters})) {
    for (const each of [value].flat()) if (each !== "" && each !== null && each !== undefined) query.append(name, each);
  }
  return `#${path}${query.size ? `?${query}` : ""}`;
}

/** Group pairs of names and values as {name: [values]}. */
export function grouped(pairs) {
  const found = {};
  for (const [name, value] of pairs) (found[name] ??= []).push(value);
  return found;
}

/** Return the current address with `changes`. It reads the address bar, because the drawn page may be older. */
export function here(changes) {
  const {path, query} = read();
  return to(path, {...grouped([...query]), ...changes});
}

/** Open an address. With `replaces`, the back button gets no extra step, for example while somebody types. */
export function go(address, {replaces = false} = {}) {
  if (!replaces) {
    location.hash = address;
    return;
  }
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Return the current address, and redraw the component when it changes. */
export function useAddress() {
  const [at, setAt] = useState(read);
  useEffect(() => {
    const changed = () => setAt(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return at;
}

/** Return the address for senders: the server's setting, or the console's own address. */
export function receivedAt(telemetry) {
  const found = new URL(telemetry ?? "..", document.baseURI);
  if (["0.0.0.0", "[::]"].includes(found.hostname)) found.hostname = location.hostname;
  return found.href.replace(/\/$/, "");
}
