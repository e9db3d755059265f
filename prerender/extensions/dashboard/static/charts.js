// Small SVG charts, each with its figures as an accessible table.

import { h, s } from "./dom.js";

const HEIGHT = 150;
const TOP = 12;
const BOTTOM = 22;

/** The minutes of the last hour, each with the sums of its two half minutes. */
export function minutes(summary) {
  const last = Math.floor(summary.now / 60);
  const found = Array.from({ length: 60 }, (_, index) => ({ time: (last - 59 + index) * 60 }));
  for (const point of summary.points) {
    const minute = found[Math.floor(point.time / 60) - last + 59];
    if (!minute) continue;
    for (const [name, value] of Object.entries(point)) if (name !== "time") minute[name] = (minute[name] || 0) + value;
  }
  return found;
}

// What the bars of the last hour are.
const MINUTES = {
  unit: "Minute", ends: ["60 min ago", "30 min ago", "now"],
  name: (point) => new Date(point.time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }),
};

/** Stacked bars, one per point of axis. series: [{ name, label, value(point) }], format(number). */
export function bars(title, points, series, format, width, axis = MINUTES) {
  const totals = points.map((point) => series.reduce((sum, one) => sum + one.value(point), 0));
  const most = nice(Math.max(...totals));
  const room = HEIGHT - TOP - BOTTOM;
  const step = width / points.length;
  const drawing = s("svg", {
    class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img",
    "aria-label": `${title}: ${series.map((one) => one.label).join(", ")}, by ${axis.unit.toLowerCase()}. The figures follow as a table.`,
  });
  const scale = [];
  for (const share of [0, 0.5, 1]) {
    const y = TOP + room * (1 - share);
    drawing.append(s("line", { class: share ? "grid" : "base", x1: 0, x2: width, y1: y, y2: y }));
    if (share && most) scale.push(s("text", { class: "scale", x: 2, y: y - 3 }, format(most * share)));
  }
  points.forEach((point, index) => {
    let below = 0;
    const column = s("g", { class: "column" }, s("title", {}, describe(point, series, format, axis)));
    column.append(s("rect", { class: "catch", x: index * step, y: TOP, width: step, height: room }));
    for (const one of series) {
      const height = most ? one.value(point) / most * room : 0;
      if (height <= 0) continue;
      column.append(s("rect", {
        class: `bar ${one.name}`, x: (index * step + step * 0.12).toFixed(2), width: (step * 0.76).toFixed(2),
        y: (TOP + room - below - height).toFixed(2), height: Math.max(height, 0.75).toFixed(2),
        rx: Math.min(1.5, step / 4),
      }));
      below += height;
    }
    drawing.append(column);
  });
  drawing.append(...scale);  // in front of the bars
  for (const [share, index, anchor] of /** @type {[number, number, string][]} */ ([[0, 0, "start"], [0.5, 1, "middle"], [1, 2, "end"]])) {
    drawing.append(s("text", { class: "scale", x: share * width, y: HEIGHT - 6, "text-anchor": anchor }, axis.ends[index]));
  }
  return h("figure", {}, legend(series), drawing, table(title, points, series, format, axis));
}

/** A sparkline. */
export function spark(values) {
  const width = 120;
  const height = 30;
  const most = Math.max(...values.map((value) => value || 0)) || 1;
  const points = values.map((value, index) => value === null ? null
    : `${(index / (values.length - 1) * width).toFixed(1)},${(height - 2 - value / most * (height - 4)).toFixed(1)}`)
    .filter(Boolean);
  if (points.length < 2) return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const first = points[0].split(",")[0];
  const last = points.at(-1).split(",")[0];
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("polygon", { points: `${first},${height} ${points.join(" ")} ${last},${height}` }),
    s("polyline", { points: points.join(" ") }));
}

function legend(series) {
  return h("ul", { class: "legend" }, series.map((one) => h("li", {},
    h("span", { class: `swatch ${one.name}`, "aria-hidden": "true" }), one.label)));
}

function describe(point, series, format, axis) {
  const said = series.filter((one) => one.value(point) > 0).map((one) => `${one.label}: ${format(one.value(point))}`);
  return `${axis.name(point)}\n${said.join("\n") || "nothing"}`;
}

function table(title, points, series, format, axis) {
  const rows = points.filter((point) => series.some((one) => one.value(point) > 0)).reverse();
  return h("details", { class: "figures" }, h("summary", {}, "Figures"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, figures` },
      h("table", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, axis.unit),
          series.map((one) => h("th", { scope: "col", class: "number" }, one.label)))),
        h("tbody", {}, rows.map((point) => h("tr", {},
          h("th", { scope: "row" }, axis.name(point)),
          series.map((one) => h("td", { class: "number" }, format(one.value(point))))))))));
}

/** The next round number. */
function nice(most) {
  if (!most) return 0;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 4, 5, 10].map((factor) => factor * power).find((value) => value >= most);
}
