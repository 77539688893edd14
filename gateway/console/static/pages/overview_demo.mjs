/** The demo month: offered while there are no records, shown at its own address, and removable from there or from the overview. */
import {html, useEffect, useState} from "../lib/html.mjs";
import {get, send} from "../lib/api.mjs";
import {may} from "../lib/parts.mjs";

const CHECK_MS = 1000; // how often to check while the demo is created
const CHANGES = "installation_administration";

/** The overview's section about the demo month. */
export function Demo({state: first, session, isEmpty}) {
  const [state, setState] = useState(first);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (state !== "loading") return undefined;
    const timer = setInterval(async () => setState((await get("/demo")).demo.state), CHECK_MS);
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
    ${state === "none" && html`<p>Explore 30 days of invented calls. They are stored separately from your own and never forwarded. One click removes them.</p>
      <button type="button" onClick=${change("POST", {})}>Load a demo month</button>`}
    ${state === "loading" && html`<p role="status" class="wait"><span aria-hidden="true">●</span> Creating a month of calls. This takes some seconds.</p>`}
    ${state === "removing" && html`<p role="status">Removing the demo month ...</p>`}
    ${state === "loaded" && html`<p>A demo month is loaded. It is not part of your totals.</p>
      <p class="bar"><a class="button" href="demo/">Open the demo month</a>
        ${isAllowed && html`<button type="button" onClick=${change("DELETE")}>Remove the demo month</button>`}</p>`}
    ${problem && html`<p role="alert" class="wrong">${problem}</p>`}</section>`;
}

/** The banner above every page of the demo month. */
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
  return html`<aside class="demo bar" aria-label="Demo month"><span><strong>Demo month.</strong> These calls are invented and stored separately from your own.</span>
    <a class="button" href="../">Show your own calls</a>
    ${may(session, CHANGES) && html`<button type="button" disabled=${isBusy} onClick=${remove}>Remove the demo month</button>`}
    ${problem && html`<span role="alert" class="wrong">${problem}</span>`}</aside>`;
}

/** The banner of a data directory that `tollhouse demo` filled. */
export const MadeUp = ({planted}) => html`<aside class="demo bar" aria-label="Demo"><span><strong>Demo.</strong> These calls are made up.</span>${planted.length > 0
  && html`<details><summary>${planted.length === 1 ? "1 problem is" : `${planted.length} problems are`} planted</summary><ul>${planted.map((each) => html`<li key=${each}>${each}</li>`)}</ul></details>`}</aside>`;
