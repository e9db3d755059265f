import { useQuery } from "@tanstack/react-query";
import { useLoaderData, useParams } from "react-router";

export const loader = async ({ params }) => {
  const answer = await fetch(`/api/birds/${params.id}`);
  return answer.ok ? answer.json() : null;
};

export function Component() {
  const bird = useLoaderData();
  const { id } = useParams();
  const { data, isPending } = useQuery({
    queryKey: ["places", id],
    queryFn: async () => (await fetch(`/api/birds/${id}/places`)).json(),
    enabled: bird !== null,
  });
  if (!bird) return <><meta name="prerender-status-code" content="404" /><p>Unknown bird {id}</p></>;
  return <><title>{bird.name}</title><h1>{bird.name}</h1><p>{isPending ? "Loading" : data.join(", ")}</p></>;
}
