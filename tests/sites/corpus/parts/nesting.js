const inner = new Worker("/parts/deep.js");
inner.onmessage = ({ data }) => postMessage(data);
