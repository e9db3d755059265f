import { useEffect, useState } from "react";

export default function Late() {
  const [places, setPlaces] = useState("");
  useEffect(() => {
    fetch("/api/birds/2/places").then((answer) => answer.json()).then((found) => setPlaces(found.join(", ")));
  }, []);
  return <section><h2>The late part</h2><p>{places || "Loading places"}</p></section>;
}
