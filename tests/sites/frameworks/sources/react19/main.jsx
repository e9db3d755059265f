// React 19: React Router with lazy routes and loaders, use() and Suspense, TanStack Query and Virtual,
// emotion, Motion, SWR, ViewTransition, titles and metas as React hoists them.
import { css } from "@emotion/react";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Suspense, ViewTransition, startTransition, use, useDeferredValue, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { Link, Outlet, createBrowserRouter, useRouteError } from "react-router";
import { RouterProvider } from "react-router/dom";
import { Styled } from "./styled.jsx";

const load = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer.json();
};
const promises = new Map();
const loadOnce = (path) => promises.get(path) ?? promises.set(path, load(path)).get(path);

function Layout() {
  return <><nav>The menu</nav><Suspense fallback="Loading"><Outlet /></Suspense></>;
}

function Birds() {
  const birds = use(loadOnce("/api/birds"));
  return <>
    <title>All birds</title>
    <meta name="description" content={`${birds.length} birds`} />
    <ul>{birds.map(({ id, name }) => <li key={id}>
      <Link to={`/birds/${id}`}>{name}</Link>
      <Suspense fallback=", loading places"><Places id={id} /></Suspense>
    </li>)}</ul>
  </>;
}

function Places({ id }) {
  return <Styled css={css`color: rgb(90, 10, 10); font-weight: 700;`}>{use(loadOnce(`/api/birds/${id}/places`)).join(", ")}</Styled>;
}

function Transition() {
  const [birds, setBirds] = useState(null);
  const deferred = useDeferredValue(birds);
  useEffect(() => {
    loadOnce("/api/birds").then((found) => startTransition(() => setBirds(found)));
  }, []);
  return deferred
    ? <ViewTransition enter="slide"><ol>{deferred.map(({ id, name }) => <li key={id}>{name}</li>)}</ol></ViewTransition>
    : <ViewTransition exit="slide"><p>Loading</p></ViewTransition>;
}

function Ready() {
  const [done, setDone] = useState(false);
  useEffect(() => {
    window.prerenderReady = false;
    const poll = setInterval(() => load("/api/words/de"), 3000);
    setTimeout(async () => {
      await load("/api/birds");
      setDone(true);
      requestAnimationFrame(() => { window.prerenderReady = true; });
    }, 900);
    return () => clearInterval(poll);
  }, []);
  return <p>{done ? "It says itself when it is ready" : "waiting"}</p>;
}

function Failed() {
  return <p role="alert">Sorry: {useRouteError().message}</p>;
}

function Missing() {
  return <><title>Not here</title><meta name="prerender-status-code" content="404" /><h1>There is no such page</h1></>;
}

const router = createBrowserRouter([{
  element: <Layout />,
  hydrateFallbackElement: <p>Loading</p>,
  children: [
    { path: "/birds", element: <Birds /> },
    { path: "/birds/:id", lazy: () => import("./Bird.jsx") },
    { path: "/notes", lazy: () => import("./Notes.jsx") },
    { path: "/list", lazy: () => import("./List.jsx") },
    { path: "/long-page", lazy: async () => ({ Component: (await import("./List.jsx")).LongPage }) },
    { path: "/moving", lazy: () => import("./Moving.jsx") },
    { path: "/polling", lazy: () => import("./Polling.jsx") },
    { path: "/transition", element: <Transition /> },
    { path: "/ready", element: <Ready /> },
    { path: "/broken", loader: () => load("/api/broken"), element: <p />, errorElement: <Failed /> },
    { path: "*", element: <Missing /> },
  ],
}], { basename: "/react19" });

createRoot(document.getElementById("app")).render(
  <QueryClientProvider client={new QueryClient()}><RouterProvider router={router} /></QueryClientProvider>,
);
