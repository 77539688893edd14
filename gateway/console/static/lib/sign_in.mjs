/** Sign-in with a one-time link, whose secret is in the address, or with an operator account. */
import {html, useEffect, useState} from "./html.mjs";
import {addressOf, get, send} from "./api.mjs";

/** Return the link's secret or null. Removes it from the address bar, so that no browser history keeps it. */
export function secretInAddress() {
  const found = location.hash.match(/^#link=(.+)$/);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return decodeURIComponent(found[1]);
}

/** Return the error code of a failed sign-in with the OpenID provider, or null. Removes it from the address bar. */
function problemInAddress() {
  const found = location.hash.match(/^#problem=(\w+)$/);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return found[1];
}

export function SignIn({link, signedIn}) {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [provider, setProvider] = useState(null);
  const lookForProvider = async () => {
    const word = problemInAddress();
    try {
      const ways = await get("/sign-in-ways");
      setProvider(ways.provider);
      if (word) setProblem(ways.problems[word] ?? "");
    } catch (error) {
      setProblem(error.message);
    }
  };
  const attempt = async (body) => {
    setBusy(true);
    try {
      signedIn((await send("POST", "/sessions", body)).session);
    } catch (error) {
      setProblem(error.message);
      setBusy(false);
    }
  };
  useEffect(() => {
    lookForProvider();
    if (link) attempt({link});
  }, []);
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    attempt({email: given.get("email"), password: given.get("password")});
  };
  return html`<main class="sign-in"><h1>Tollhouse</h1>
    <form onSubmit=${submit}>
      <label>E-mail <input name="email" type="email" autocomplete="username" required /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required /></label>
      <button type="submit" class="main" disabled=${isBusy}>Sign in</button>
      <p role="alert" class="wrong">${problem}</p>
    </form>
    ${provider && html`<p><a class="button" href=${addressOf("/oidc")}>Sign in with ${provider.name}</a></p>`}
    <p class="faint">No account? Run <code>tollhouse console link</code> on the gateway's machine. It prints a link that signs you
      in once.</p>
  </main>`;
}
