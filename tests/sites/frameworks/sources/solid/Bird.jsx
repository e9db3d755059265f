import { Title } from "@solidjs/meta";
import { useParams } from "@solidjs/router";
import { Show, createResource } from "solid-js";

const load = async (path) => (await fetch(path)).json();

export default function Bird() {
  const { id } = useParams();
  const [bird] = createResource(() => load(`/api/birds/${id}`));
  const [places] = createResource(bird, (found) => load(`/api/birds/${found.id}/places`));
  return <Show when={bird()} fallback="Loading">
    <Title>{bird().name}</Title><h1>{bird().name}</h1><p>{places()?.join(", ")}</p>
  </Show>;
}
