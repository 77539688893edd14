/** The console: signs in, and shows the page that the address names. */
import {html, render, useEffect, useState} from "./lib/html.mjs";
import {read} from "./lib/address.mjs";
import {get, isDemo, send, useToken} from "./lib/api.mjs";
import {Frame} from "./lib/frame.mjs";
import {SignIn, secretInAddress} from "./lib/sign_in.mjs";
import {PAGES} from "./pages/list.mjs";

const link = secretInAddress();
const pages = isDemo ? PAGES.filter(({path, group}) => path !== "/connect" && group !== "Administration") : PAGES;
PAGES.find(({path}) => path === read().path)?.load().catch(() => {}); // what is wrong with it is said where it is shown

// In the demo month nothing is changed; who may do so removes it.
const KEPT = /^(view_|installation_administration$)/;
const seen = (session) => (isDemo ? {...session, permission_sets: session.permission_sets.filter((each) => KEPT.test(each))} : session);

function App() {
  const [found, setFound] = useState(undefined);
  const known = (answer) => {
    useToken(answer?.session.csrf_token ?? null);
    setFound(answer);
  };
  const look = async () => {
    try {
      known(await get("/session"));
    } catch {
      known(null);
    }
  };
  useEffect(() => {
    const out = () => known(null);
    addEventListener("signed-out", out);
    if (link) known(null);
    else look();
    return () => removeEventListener("signed-out", out);
  }, []);
  if (found === undefined) return html`<p role="status" class="wait">Loading ...</p>`;
  if (found === null) return html`<${SignIn} link=${link} signedIn=${look} />`;
  const leave = async () => {
    await send("DELETE", "/session");
    known(null);
  };
  return html`<${Frame} pages=${pages} session=${seen({...found.session, ...found.rights})} version=${found.version} telemetry=${found.telemetry_url}
    leave=${leave} />`;
}

render(html`<${App} />`, document.getElementById("app"));
