/** Entry point of the console: signs the person in and shows the page that the address names. */
import {html, render, useEffect, useState} from "./lib/html.mjs";
import {read} from "./lib/address.mjs";
import {get, isDemo, send, useToken} from "./lib/api.mjs";
import {Frame} from "./lib/frame.mjs";
import {SignIn, secretInAddress} from "./lib/sign_in.mjs";
import {MENU, PAGES} from "./pages/list.mjs";

const link = secretInAddress();
const SET_UP = MENU.filter(({group}) => group === "Set up").map(({name}) => name);
const pages = isDemo ? PAGES.filter(({path, entry}) => !SET_UP.includes(entry) && path !== "/devices") : PAGES;
PAGES.find(({path}) => path === read().path)?.load().catch(() => {}); // the page itself shows the error

// The demo month is read-only, so the session keeps only the right to look and the right to remove the demo.
const DEMO_PERMISSIONS = /^(view_|installation_administration$)/;
const sessionShown = (session) => (isDemo ? {...session, permission_sets: session.permission_sets.filter((each) => DEMO_PERMISSIONS.test(each))} : session);

function App() {
  const [signedIn, setSignedIn] = useState(undefined); // null: signed out; undefined: not known yet
  const setSession = (answer) => {
    useToken(answer?.session.csrf_token ?? null);
    const asks = answer?.rights.needs_reason && !isDemo;
    if (!asks || !/tollhouse_reason=./.test(document.cookie)) {
      const reason = asks && prompt("Why do you look at figures of people?"); // once per session, also for the next person
      document.cookie = `tollhouse_reason=${encodeURIComponent((reason || "").slice(0, 200))}`;
    }
    setSignedIn(answer);
  };
  const loadSession = async () => {
    try {
      setSession(await get("/session"));
    } catch {
      setSession(null);
    }
  };
  useEffect(() => {
    const signedOut = () => setSession(null);
    addEventListener("signed-out", signedOut);
    if (link) setSession(null);
    else loadSession();
    return () => removeEventListener("signed-out", signedOut);
  }, []);
  if (signedIn === undefined) return html`<p role="status" class="wait">Loading ...</p>`;
  if (signedIn === null) return html`<${SignIn} link=${link} signedIn=${loadSession} />`;
  const leave = async () => {
    await send("DELETE", "/session");
    setSession(null);
  };
  return html`<${Frame} pages=${pages} session=${sessionShown({...signedIn.session, ...signedIn.rights})} version=${signedIn.version} telemetry=${signedIn.telemetry_url}
    leave=${leave} />`;
}

render(html`<${App} />`, document.getElementById("app"));
