import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

export function Component() {
  const { data, fetchNextPage, hasNextPage } = useInfiniteQuery({
    queryKey: ["notes"],
    queryFn: async ({ pageParam }) => (await fetch(`/api/notes?page=${pageParam}`)).json(),
    initialPageParam: 1,
    getNextPageParam: (page) => page.next,
  });
  const end = useRef(null);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => { if (entry.isIntersecting) fetchNextPage(); });
    if (end.current) observer.observe(end.current);
    return () => observer.disconnect();
  }, [data, fetchNextPage]);
  return <>
    {data?.pages.flatMap(({ notes }) => notes).map((note) => <p key={note} style={{ height: 120 }}>{note}</p>)}
    {hasNextPage === false ? <p>That is all</p> : <p ref={end}>Loading</p>}
  </>;
}
