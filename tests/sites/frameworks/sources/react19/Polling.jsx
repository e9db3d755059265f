import { Suspense, useState } from "react";
import useSWR from "swr";

const load = async (path) => (await fetch(path)).json();

function Places() {
  const { data } = useSWR("/api/birds/2/places", load, { suspense: true });
  return <p>{data.join(", ")}</p>;
}

export function Component() {
  const [polls, setPolls] = useState(0);
  const { data: birds } = useSWR("/api/birds", load, { refreshInterval: 3000, onSuccess: () => setPolls((n) => n + 1) });
  const { data: bird } = useSWR(birds && `/api/birds/${birds[2].id}`, load);
  return <>
    <h1>{bird?.name ?? "Loading"}, {polls > 0 ? "asked for again and again" : "waiting"}</h1>
    <Suspense fallback="Loading"><Places /></Suspense>
  </>;
}
