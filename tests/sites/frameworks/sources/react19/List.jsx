import { useVirtualizer, useWindowVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";

const Rows = ({ of }) => <div style={{ height: of.getTotalSize(), position: "relative" }}>
  {of.getVirtualItems().map(({ key, index, start }) => <div
    key={key} data-index={index} ref={of.measureElement}
    style={{ position: "absolute", top: 0, transform: `translateY(${start}px)`, height: 30 + (index % 3) * 10 }}
  >Row {index}</div>)}
</div>;

export function Component() {
  const parent = useRef(null);
  const rows = useVirtualizer({ count: 1000, getScrollElement: () => parent.current, estimateSize: () => 40 });
  return <div ref={parent} style={{ height: 300, overflow: "auto" }}><Rows of={rows} /></div>;
}

export function LongPage() {
  return <Rows of={useWindowVirtualizer({ count: 100, estimateSize: () => 40 })} />;
}
