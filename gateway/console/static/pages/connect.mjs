/** Connect a sender: its settings with this gateway's address and a new key, then its first record. */
import {go, here, receivedAt, to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {FAMILY} from "../lib/dimensions.mjs";
import {ago, count, money} from "../lib/format.mjs";
import {html, useEffect, useState} from "../lib/html.mjs";
import {useLive} from "../lib/live.mjs";
import {Copy, Problem, may} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {TOOLS} from "./connect_texts.mjs";

const PATH = "/connect";
const USE_CASE = "Send AI Telemetry";
const kinds = [...new Set(TOOLS.map((each) => each.kind))];
const ANY = "opentelemetry";
const COMMON = ["litellm", "claude-code", "codex", "cursor", "bedrock", "vercel-ai"];

export function Page({query, session, telemetry}) {
  const tool = TOOLS.find((each) => each.id === query.get("tool"));
  return tool ? html`<${Tool} key=${tool.id} tool=${tool} session=${session} address=${receivedAt(telemetry)} />` : html`<${Choice} />`;
}

function Choice() {
  const [word, setWord] = useState("");
  const shown = TOOLS.filter((each) => each.title.toLowerCase().includes(word.trim().toLowerCase()));
  const choices = (tools) => html`<ul class="choices">${tools.map((each) => html`<li key=${each.id}><a href=${here({tool: each.id})}>${each.title}</a></li>`)}</ul>`;
  return html`<p>Choose the program that sends calls. You get its settings with this gateway's address and a new key.</p>
    <h2>Used most</h2>
    ${choices([...COMMON.map((id) => TOOLS.find((each) => each.id === id)), {id: ANY, title: "Anything else: OpenTelemetry"}])}
    <h2>All ${TOOLS.length}</h2>
    <div class="bar"><label>Find <input type="search" value=${word} onInput=${(event) => setWord(event.target.value)} autocomplete="off" /></label></div>
    ${kinds.map((kind) => {
      const found = shown.filter((each) => each.kind === kind);
      return found.length > 0 && html`<section key=${kind}><h3>${kind[0].toUpperCase() + kind.slice(1)}</h3>${choices(found)}</section>`;
    })}
    ${!shown.length && html`<p role="status">No sender is called “${word}”. Any program that sends OTLP can use the settings of
      <a href=${here({tool: ANY})}> OpenTelemetry SDKs</a>.</p>`}`;
}

/** Put this gateway's address, and the key if one exists, into the text. */
function filled(text, address, secret) {
  const {hostname} = new URL(address);
  const placed = text.replaceAll("http://HOST:4318", address).replaceAll(/\bHOST\b/g, hostname);
  return secret ? placed.replaceAll(/\bKEY\b/g, secret) : placed;
}

function Tool({tool, session, address}) {
  const [key, setKey] = useState(null);
  const [problem, setProblem] = useState(null);
  const make = async () => {
    const name = `${tool.id}-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36).slice(0, 5)}`;
    try {
      const {secret} = await send("POST", "/keys", {name, use_cases: [USE_CASE], description: `Created on the Connect page for ${tool.title}`});
      setKey({name, secret});
      setProblem(null);
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<p class="bar"><a href=${to(PATH)}>All senders</a></p>
    <h2>${tool.title}</h2>
    ${key ? html`<p role="status">The key <a href=${to("/keys", {open: key.name})}>${key.name}</a> is in the settings below. Tollhouse shows it only this once.</p>`
    : may(session, "api_key_management") ? html`<p class="bar"><button type="button" class="main" onClick=${make}>Create a key</button>
      <span class="faint">The key may only send telemetry. It replaces KEY below.</span></p>`
    : html`<p>Replace KEY by a Tollhouse key with the use case ${USE_CASE}. Somebody who manages API keys can create it.</p>`}
    <${Problem} error=${problem} />
    <div class="steps">${tool.steps.map((each, place) => (each.code
      ? html`<${Copy} key=${place} label=${`settings ${place + 1} of ${tool.title}`} text=${filled(each.code, address, key?.secret)} />`
      : html`<p key=${place}>${filled(each.text, address, key?.secret)}</p>`))}</div>
    <${Arrival} tool=${tool} sender=${key?.name} />`;
}

/** Wait for the key's first record. Before a key exists, link to the tool's calls. */
function Arrival({tool, sender}) {
  const query = useQuery(async () => {
    if (!sender) return {};
    const [call] = (await get("/records", {sender, limit: 1})).records;
    return call ? {call} : {test: (await get(`/keys/${encodeURIComponent(sender)}`)).key.last_test};
  }, [sender]);
  useLive(["records"], query.reload);
  useEffect(() => {
    if (!sender || query.data?.call) return undefined;
    const timer = setInterval(query.reload, 5000); // the first record may arrive before the stream is open
    return () => clearInterval(timer);
  }, [sender, query.data?.call]);
  const {call, test} = query.data ?? {};
  if (!sender) return html`<p class="faint">Calls from this sender have the source ${tool.source}. <a href=${to("/calls", {source: tool.source})}>Show its calls</a>.</p>`;
  if (!call) return html`<p role="status" class="waits">${test ? `A test span of ${sender} arrived ${ago(test)}. It is not counted. ` : ""}Waiting for the first record of ${sender} ... It appears about ten seconds after the call.</p>`;
  const cost = call.cost ?? call.estimated_cost;
  return html`<section class="first"><h2>It works. The first record has arrived</h2>
    <p role="status">${call.response_model ?? call.request_model ?? call.source}: ${call.input_tokens !== null && call.input_tokens !== undefined
      ? `${count(call.input_tokens)} tokens in, ${count(call.output_tokens ?? 0)} out, ` : ""}${cost ? money(cost) : "without a price"}.</p>
    <p class="bar"><a class="button main" href=${to("/calls", {open: call.id})}>See how it was counted</a>
      <a href=${to("/costs", {sender, by: FAMILY})}>Show its costs</a> <button type="button" onClick=${() => go(to(PATH))}>Connect another sender</button></p></section>`;
}
