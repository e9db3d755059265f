setTimeout(() => postMessage("from the worker's timer"), 500);
