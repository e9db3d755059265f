// Solid: Solid Router with lazy routes, resources, Suspense, ErrorBoundary, meta tags, transitions of state.
import { MetaProvider, Meta, Title } from "@solidjs/meta";
import { A, Route, Router } from "@solidjs/router";
import { ErrorBoundary, For, Suspense, SuspenseList, createResource, createSignal, lazy, startTransition } from "solid-js";
import { render } from "solid-js/web";

const load = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer.json();
};
const Bird = lazy(() => import("./Bird.jsx"));

function Birds() {
  const [birds] = createResource(() => load("/api/birds"));
  return <>
    <Title>{birds()?.length} birds</Title>
    <ul><For each={birds()} fallback={<li>Loading</li>}>{(bird) => <li><A href={`/birds/${bird.id}`}>{bird.name}</A></li>}</For></ul>
  </>;
}

function InOrder() {
  const Part = (props) => {
    const [data] = createResource(() => load(props.from));
    return <p>{props.from} says {JSON.stringify(data())}</p>;
  };
  return <SuspenseList revealOrder="forwards" tail="collapsed">
    <Suspense fallback="Loading 1"><Part from="/api/birds/1/places" /></Suspense>
    <Suspense fallback="Loading 2"><Part from="/api/birds/2" /></Suspense>
  </SuspenseList>;
}

function Later() {
  const [id, setID] = createSignal(1);
  const [bird] = createResource(id, (wanted) => load(`/api/birds/${wanted}`));
  setTimeout(() => startTransition(() => setID(5)), 300);
  return <p>{id() === 1 ? `waiting, ${bird()?.name}` : bird()?.name}</p>;
}

function Broken() {
  const [data] = createResource(() => load("/api/broken"));
  return <ErrorBoundary fallback={(error) => <p>Sorry: {error.message}</p>}><p>{data()}</p></ErrorBoundary>;
}

function Missing() {
  return <><Title>Not here</Title><Meta name="prerender-status-code" content="404" /><h1>There is no such page</h1></>;
}

function Layout(props) {
  return <MetaProvider><nav>The menu</nav><Suspense fallback="Loading">{props.children}</Suspense></MetaProvider>;
}

render(() => <Router base="/solid" root={Layout}>
  <Route path="/birds" component={Birds} />
  <Route path="/birds/:id" component={Bird} />
  <Route path="/in-order" component={InOrder} />
  <Route path="/later" component={Later} />
  <Route path="/broken" component={Broken} />
  <Route path="*" component={Missing} />
</Router>, document.getElementById("app"));
