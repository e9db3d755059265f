setTimeout(() => postMessage("deep"), 300);
