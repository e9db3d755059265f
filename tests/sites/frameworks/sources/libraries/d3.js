import { interpolateNumber } from "d3-interpolate";
import { select, selectAll } from "d3-selection";
import "d3-transition";

export async function show(app) {
  const birds = await (await fetch("/api/birds")).json();
  const chart = select(app).append("svg").attr("width", 600).attr("height", 200);
  chart.selectAll("text").data(birds).join("text")
    .attr("y", 150).attr("x", (_, i) => 20 + i * 100).style("opacity", 0).text("0")
    .transition().duration(500).delay((_, i) => i * 80)
    .style("opacity", 1)
    .textTween(({ span }) => { const number = interpolateNumber(0, span); return (at) => `${Math.round(number(at))} cm`; })
    .end()
    .then(() => selectAll("text").transition().duration(200).attr("y", 50).end())
    .then(() => select(app).append("p").text("The chart is drawn"));
}
