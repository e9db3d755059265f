import { renderStreamMessage } from "@hotwired/turbo";

fetch("/parts/stream").then((answer) => answer.text()).then(renderStreamMessage);
