import { useEffect, useState } from "react";
import { Helmet } from "react-helmet-async";
import { useParams } from "react-router-6";

function useJSON(path) {
  const [answer, setAnswer] = useState(null);
  useEffect(() => {
    fetch(path).then(async (found) => setAnswer({ status: found.status, data: await found.json() }));
  }, [path]);
  return answer;
}

function Places({ id }) {
  const places = useJSON(`/api/birds/${id}/places`);
  return places ? <ul>{places.data.map((place) => <li key={place}>{place}</li>)}</ul> : <p>Loading places</p>;
}

export default function Bird() {
  const { id } = useParams();
  const bird = useJSON(`/api/birds/${id}`);
  if (!bird) return <p>Loading bird</p>;
  if (bird.status === 404) {
    return <><Helmet><meta name="prerender-status-code" content="404" /></Helmet><p>Unknown: {bird.data.error}</p></>;
  }
  const { name, latin } = bird.data;
  return <><Helmet><title>{name}</title></Helmet><h1>{name}</h1><em>{latin}</em><Places id={id} /></>;
}
