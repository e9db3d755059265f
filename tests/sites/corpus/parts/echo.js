// Runs in a frame and in a worker.
const channel = new BroadcastChannel("news");
channel.onmessage = ({ data }) => {
  if (data.text) channel.postMessage({ echo: data.text });
};
channel.postMessage({ ready: true });
postMessage("ready");
