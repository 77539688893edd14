/** Names behind hashed people. Each name is fetched once and stored only in this page's memory. */
import {get} from "./api.mjs";
import {useEffect, useState} from "./html.mjs";

const HASH = /^email:[0-9a-f]{32}$/;
const MOST = 200;
const known = new Map(); // by hash; null while the request runs, and for hashes without a name
let sees = false;

export const isHash = (shown) => typeof shown === "string" && HASH.test(shown);

/** Set whether the person who is signed in may see names. */
export function allowNames(may) {
  if (!may) known.clear();
  sees = may;
}

/** Return a function that returns the name behind a hash, or the hash if the name is unknown. Fetches missing names and redraws when they arrive. */
export function useNames(hashes) {
  const [, draw] = useState(0);
  const missing = sees ? [...new Set(hashes)].filter((each) => !known.has(each)).slice(0, MOST) : [];
  useEffect(() => {
    if (!missing.length) return;
    missing.forEach((each) => known.set(each, null));
    get("/people", {user: missing, limit: MOST}).then(({people: found}) => {
      found.filter(({name}) => name).forEach(({names, name}) => names.forEach((each) => known.set(each, name)));
      draw((times) => times + 1);
    }, () => missing.forEach((each) => known.delete(each)));
  }, [missing.join()]);
  return (hash) => known.get(hash) ?? hash;
}
