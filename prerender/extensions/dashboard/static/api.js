// Client of the JSON API of the same listener, the only server that the dashboard talks to.

const BASE = "/api/v1/";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(BASE + path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The proxy does not respond.");
  }
  if (response.ok) return response;
  let detail = response.statusText;
  try { detail = (await response.json()).detail || detail; } catch { /* not ours, then */ }
  if (response.status === 401 && path !== "session") dispatchEvent(new CustomEvent("locked"));
  throw new Problem(response.status, detail);
}

function query(values) {
  const set = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return new URLSearchParams(set.map(([key, value]) => [key, String(value)])).toString();
}

export async function get(path, values = {}, signal = undefined) {
  return (await ask(`${path}?${query(values)}`, { signal })).json();
}

/** A picture as a blob URL, which the caller has to revoke. */
export async function picture(path, signal = undefined) {
  return (await ask(path, { signal })).blob();
}

export async function text(path, signal = undefined) {
  return (await ask(path, { signal })).text();
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

export const cancel = (path) => ask(path, { method: "DELETE" });
export const leave = () => cancel("session");
export const url = (path, values = {}) => `${BASE}${path}${Object.keys(values).length ? `?${query(values)}` : ""}`;
