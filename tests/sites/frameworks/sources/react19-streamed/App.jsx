import { Suspense, lazy, useEffect, useState } from "react";

const Late = lazy(() => import("./Late.jsx"));

export function App() {
  const [birds, setBirds] = useState(null);
  useEffect(() => { fetch("/api/birds").then((answer) => answer.json()).then(setBirds); }, []);
  return <main>
    <title>Made on a server</title>
    <h1>From the server</h1>
    <p>{birds ? `In the browser: ${birds.map(({ name }) => name).join(", ")}` : "Loading birds"}</p>
    <Suspense fallback={<p>Loading the late part</p>}><Late /></Suspense>
  </main>;
}
