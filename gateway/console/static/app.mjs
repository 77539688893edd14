/** The console: signs in, shows the page that the address names, and what stands around it. */
import {html, render, useEffect, useState} from "./lib/html.mjs";
import {useAddress} from "./lib/address.mjs";
import {get, send, useToken} from "./lib/api.mjs";
import {SignIn, secretInAddress} from "./lib/sign_in.mjs";
import {PAGES} from "./pages/list.mjs";

const THEMES = ["system", "light", "dark"];
const DARK = matchMedia("(prefers-color-scheme: dark)");
const link = secretInAddress();

function App() {
  const [session, setSession] = useState(undefined);
  const [version, setVersion] = useState("");
  const known = (found) => {
    useToken(found?.csrf_token ?? null);
    setSession(found);
  };
  useEffect(() => {
    const out = () => known(null);
    addEventListener("signed-out", out);
    if (link) known(null);
    else look();
    return () => removeEventListener("signed-out", out);
  }, []);
  const look = async () => {
    try {
      const found = await get("/session");
      known(found.session);
      setVersion(found.version);
    } catch {
      known(null);
    }
  };
  if (session === undefined) return html`<p role="status" class="wait">Loading ...</p>`;
  if (session === null) return html`<${SignIn} link=${link} signedIn=${look} />`;
  const leave = async () => {
    await send("DELETE", "/session");
    known(null);
  };
  return html`<${Shell} session=${session} version=${version} leave=${leave} />`;
}

function Shell({session, version, leave}) {
  const {path} = useAddress();
  const [theme, isDark, nextTheme] = useTheme();
  const page = PAGES.find((each) => each.path === path);
  useEffect(() => {
    document.title = `${page?.title ?? "Not found"} · Tollhouse`;
  }, [path]);
  return html`
    <a class="skip" href="#main" onClick=${toMain}>To the content</a>
    <header>
      <strong class="brand">Tollhouse</strong>
      <nav aria-label="Pages">${PAGES.map((each) => html`<a key=${each.path} href=${`#${each.path}`}
        aria-current=${each === page ? "page" : undefined}>${each.title}</a>`)}</nav>
      <div class="who">
        <button type="button" onClick=${nextTheme}>Theme: ${theme}</button>
        <span class="faint">${session.actor} (${session.role})</span>
        <button type="button" onClick=${leave}>Sign out</button>
      </div>
    </header>
    <main id="main" tabindex="-1">
      <h1>${page?.title ?? "There is no such page"}</h1>
      ${page ? html`<${page.Page} isDark=${isDark} session=${session} />`
        : html`<p>Nothing is at <code>${path}</code>. <a href="#/">To the overview</a></p>`}
    </main>
    <footer class="faint">Tollhouse ${version}. Times are UTC. Prompts and answers are never stored.</footer>`;
}

const toMain = (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
};

/** The chosen theme, whether it is dark now, and a function that goes on to the next. */
function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? "system");
  const [prefersDark, setPrefersDark] = useState(DARK.matches);
  useEffect(() => {
    const changed = () => setPrefersDark(DARK.matches);
    DARK.addEventListener("change", changed);
    return () => DARK.removeEventListener("change", changed);
  }, []);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const next = () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
  return [theme, theme === "dark" || (theme === "system" && prefersDark), next];
}

render(html`<${App} />`, document.getElementById("app"));
