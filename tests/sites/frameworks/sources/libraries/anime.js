import { animate, createTimeline, stagger } from "animejs";

export function show(app) {
  app.innerHTML = '<h1>Wren</h1><h1>Curlew</h1><p id="number">0</p><div id="endless">Turning</div>';
  animate("#endless", { rotate: 360, duration: 2000, loop: true });
  createTimeline({ onComplete() { app.insertAdjacentHTML("beforeend", "<p>The timeline has ended</p>"); } })
    .add("h1", { opacity: [0, 1], y: [40, 0], duration: 600, delay: stagger(200) })
    .add("#number", { innerHTML: [0, 176], modifier: Math.round, duration: 700 });
}
