import "lazysizes";

export function show(app) {
  const picture = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='20' height='20'/%3E";
  app.innerHTML = `<p>Pictures:</p><div style="height: 4000px"></div><img class="lazyload" data-src="${picture}" alt="far"><p id="state">waiting</p>`;
  document.addEventListener("lazyloaded", () => { document.getElementById("state").textContent = "The picture far below is there"; });
}
