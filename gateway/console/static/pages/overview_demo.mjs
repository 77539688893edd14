/** A demo month: offered while no record has arrived, shown at an address of its own, removed from there or from the Overview. */
import {html, useEffect, useState} from "../lib/html.mjs";
import {get, send} from "../lib/api.mjs";
import {may} from "../lib/parts.mjs";

const ASK_MS = 1000; // again while it is made
const CHANGES = "installation_administration";

/** What the Overview says of it: it can be loaded, is being made, or is there. */
export function Demo({state: first, session, isEmpty}) {
  const [state, setState] = useState(first);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (state !== "loading") return undefined;
    const timer = setInterval(async () => setState((await get("/demo")).demo.state), ASK_MS);
    return () => clearInterval(timer);
  }, [state]);
  const change = (method, body) => async () => {
    setProblem("");
    setState(method === "POST" ? "loading" : "removing");
    try {
      const {demo} = await send(method, "/demo", body);
      setState(demo.state);
      if (method === "POST") location.assign("demo/");
    } catch (error) {
      setState(method === "POST" ? "none" : "loaded");
      setProblem(error.message);
    }
  };
  const isAllowed = may(session, CHANGES);
  if (!state || (state === "none" && !(isEmpty && isAllowed))) return null;
  return html`<section><h3>A demo month</h3>
    ${state === "none" && html`<p>Look around in 30 days of made-up calls. They lie apart from your own, are never forwarded, and leave with one click.</p>
      <button type="button" onClick=${change("POST", {})}>Load a demo month</button>`}
    ${state === "loading" && html`<p role="status" class="wait"><span aria-hidden="true">●</span> Making a month of calls. It takes some seconds.</p>`}
    ${state === "removing" && html`<p role="status">Removing it ...</p>`}
    ${state === "loaded" && html`<p>A demo month is loaded. It lies apart from your own calls and is in none of their sums.</p>
      <p class="bar"><a class="button" href="demo/">Look at the demo month</a>
        ${isAllowed && html`<button type="button" onClick=${change("DELETE")}>Remove it</button>`}</p>`}
    ${problem && html`<p role="alert" class="wrong">${problem}</p>`}</section>`;
}

/** Stands above every page of the demo month. */
export function Banner({session}) {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const remove = async () => {
    setBusy(true);
    try {
      await send("DELETE", "/demo");
      location.assign("../");
    } catch (error) {
      setProblem(error.message);
      setBusy(false);
    }
  };
  return html`<aside class="demo bar" aria-label="Demo month"><span><strong>Demo month.</strong> These calls are made up. They lie apart from your own.</span>
    <a class="button" href="../">To your own calls</a>
    ${may(session, CHANGES) && html`<button type="button" disabled=${isBusy} onClick=${remove}>Remove it</button>`}
    ${problem && html`<span role="alert" class="wrong">${problem}</span>`}</aside>`;
}
