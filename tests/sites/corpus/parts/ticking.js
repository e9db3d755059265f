setInterval(() => postMessage("tick"), 50);
