import { useSignal } from "@preact/signals";
import { useRoute } from "preact-iso";
import { useEffect } from "preact/hooks";

export default function Bird() {
  const { params: { id } } = useRoute();
  const bird = useSignal(null);
  const places = useSignal("Loading places");
  useEffect(() => {
    (async () => {
      bird.value = await (await fetch(`/api/birds/${id}`)).json();
      places.value = (await (await fetch(`/api/birds/${id}/places`)).json()).join(", ");
    })();
  }, [id]);
  return <article><h1>{bird.value?.name ?? "Loading"}</h1><p>{places}</p></article>;
}
