// Shows the opening hours late, as booking and chat widgets do: after a timer and a fetch.
const DELAY_MS = 1000;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

async function openingHours() {
  const response = await fetch("/api/hours");
  if (!response.ok) throw new Error(`/api/hours: status ${response.status}`);
  const { hours } = await response.json();
  const rows = hours.map((row) =>
    element("tr", {}, element("th", { scope: "row" }, row.days), element("td", {}, row.hours)));
  return element("table", {}, element("tbody", {}, ...rows));
}

function unavailable(failure) {
  console.error(failure);
  // 503 asks crawlers to try again later, so that the page is not indexed without its content.
  document.head.append(element("meta", { name: "prerender-status-code", content: "503" }));
  return element("p", { role: "alert" },
    "The opening hours could not be loaded. Please try again in a moment.");
}

document.head.append(element("link", { rel: "canonical", href: `${location.origin}/contact` }));
setTimeout(async () => {
  const content = await openingHours().catch(unavailable);
  document.getElementById("hours").replaceChildren(content);
}, DELAY_MS);
