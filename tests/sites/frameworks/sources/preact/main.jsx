// Preact: preact-iso with lazy routes, signals, an error boundary.
import { signal, computed, effect } from "@preact/signals";
import { render } from "preact";
import { ErrorBoundary, LocationProvider, Route, Router, lazy, useRoute } from "preact-iso";
import { useErrorBoundary } from "preact/hooks";

const birds = signal([]);
const names = computed(() => birds.value.map(({ name }) => name));
effect(() => { document.title = `${names.value.length} birds`; });
const Bird = lazy(() => import("./Bird.jsx"));

fetch("/api/birds").then((answer) => answer.json()).then((found) => { birds.value = found; });

function Birds() {
  return names.value.length ? <ul>{names.value.map((name) => <li key={name}>{name}</li>)}</ul> : <p>Loading</p>;
}

function Failing() {
  throw new Error("this part is broken");
}

function Broken() {
  const [error] = useErrorBoundary();
  return error ? <p>Sorry: {error.message}</p> : <Failing />;
}

function Missing() {
  const { path } = useRoute();
  document.head.append(Object.assign(document.createElement("meta"), { name: "prerender-status-code", content: "404" }));
  return <h1>There is no page {path}</h1>;
}

const root = document.getElementById("app");
root.textContent = "";
render(
  <LocationProvider scope="/preact"><ErrorBoundary><Router>
    <Route path="/preact/birds" component={Birds} />
    <Route path="/preact/birds/:id" component={Bird} />
    <Route path="/preact/broken" component={Broken} />
    <Route default component={Missing} />
  </Router></ErrorBoundary></LocationProvider>,
  root,
);
