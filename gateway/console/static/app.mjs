/** The console: signs in, and shows the page that the address names. */
import {html, render, useEffect, useState} from "./lib/html.mjs";
import {read} from "./lib/address.mjs";
import {get, send, useToken} from "./lib/api.mjs";
import {Frame} from "./lib/frame.mjs";
import {SignIn, secretInAddress} from "./lib/sign_in.mjs";
import {PAGES} from "./pages/list.mjs";

const link = secretInAddress();
PAGES.find(({path}) => path === read().path)?.load().catch(() => {}); // what is wrong with it is said where it is shown

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
  return html`<${Frame} pages=${PAGES} session=${{...found.session, ...found.rights}} version=${found.version} telemetry=${found.telemetry_url}
    leave=${leave} />`;
}

render(html`<${App} />`, document.getElementById("app"));
