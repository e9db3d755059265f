"""APIs with a network path of their own never connect in any kind of frame, and no window opens."""

from aiohttp import web

from tests.conftest import StartOrigin, StartProxy, pages

# The commonest server for WebRTC behind firewalls. In Chromium 156 its end is the network process's.
TURN = "turns:turn.example:443?transport=tcp"
PAGE = """<p id="out"></p><script>
const found = [];
const kind = (api) => api ? (/native code/.test(api) ? "native" : "inert") : "missing";
const look = (name, window) => found.push(`${name}: ${kind(window.RTCPeerConnection)}`);
const add = (name, set, tag = "iframe") => {
  const frame = Object.assign(document.createElement(tag), set);
  document.body.append(frame);
  if (frame.contentWindow && !set.src && !set.srcdoc) look(name, frame.contentWindow);
  return frame;
};
const tell = (name) => `<script>
  parent.postMessage("${name}: " + (/native code/.test(RTCPeerConnection) ? "native" : "inert"), "*")
<\\/script>`;
onmessage = ({data}) => found.push(data);
look("page", window);
const blank = add("blank", {});
blank.contentDocument.open();
blank.contentDocument.write("written");
blank.contentDocument.close();
look("written", blank.contentWindow);
add("srcdoc", {srcdoc: tell("srcdoc")});
add("sandbox", {sandbox: "allow-scripts", srcdoc: tell("sandbox")});
add("data", {src: `data:text/html,${tell("data")}`});
add("blob", {src: URL.createObjectURL(new Blob([tell("blob")], {type: "text/html"}))});
add("server", {src: "/frame"});
add("object", {data: "/frame", type: "text/html"}, "object");
found.push(`window: ${open("/frame")}`);
for (const {RTCPeerConnection} of [window, blank.contentWindow]) {
  if (!RTCPeerConnection) continue;
  const connection = new RTCPeerConnection(
    {iceServers: [{urls: "TURN", username: "user", credential: "secret"}]});
  connection.createDataChannel("x");
  connection.createOffer().then((offer) => connection.setLocalDescription(offer));
}
fetch("/hold").then(() => setTimeout(() => {
  document.getElementById("out").textContent = found.sort().join(", ");
}, 1000));
</script>""".replace("TURN", TURN)
FRAME = """<script>
parent.postMessage("server: " + (/native code/.test(RTCPeerConnection) ? "native" : "inert"), "*")
</script>"""


async def test_there_is_no_webrtc_and_no_window(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    content = {"/": PAGE, "/frame": FRAME, "/hold": ""}
    application = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=content[request.path], content_type="text/html")

    application.router.add_get("/{path:.*}", answer)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    snapshot = await proxy.crawl("/")
    frames = ["blank", "blob", "data", "object", "page", "sandbox", "server", "server", "srcdoc"]
    expected = [f"{name}: inert" for name in frames]
    expected += ["window: null", "written: inert"]
    assert f'<p id="out">{", ".join(expected)}</p>' in snapshot.text


CALL = """<h1>Call</h1><p id="out">calling</p><script>
const connection = new RTCPeerConnection({ iceServers: [] });
const channel = connection.createDataChannel("chat");
channel.onopen = () => { out.textContent = "open"; };
connection.onicecandidate = () => { out.textContent = "candidate"; };
connection.createOffer().then((offer) => connection.setLocalDescription(offer));
document.title = [connection.connectionState, channel.readyState, connection.getSenders().length];
</script>"""


async def test_a_page_with_a_call_shows_that_it_connects(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": CALL})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    snapshot = await proxy.crawl("/")
    assert '<p id="out">calling</p>' in snapshot.text
    assert "<title>new,connecting,0</title>" in snapshot.text


# As webrtc-adapter does it (shimConnectionState, wrapPeerConnectionEvent).
ADAPTED = """<p id="out">failed</p><script>
const { prototype } = RTCPeerConnection;
const names = ["connectionState", "ontrack", "sctp"].filter((name) => name in prototype);
Object.defineProperty(prototype, "connectionState", {
  configurable: true, get() { return `ice ${this.iceConnectionState}`; } });
const connection = new RTCPeerConnection();
const found = [...names, connection.connectionState];
connection.ontrack = names.push;
found.push(connection.ontrack === names.push, connection.ondatachannel);
connection.close();
found.push(connection.connectionState, connection.signalingState);
const transport = new WebTransport("https://www.example.com/");
transport.datagrams.readable.getReader().read();
transport.incomingBidirectionalStreams.getReader().read();
transport.createBidirectionalStream();
out.textContent = found.join();
</script>"""


async def test_adapters_and_streams_have_what_they_look_for(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": ADAPTED})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    expected = "connectionState,ontrack,sctp,ice new,true,,ice closed,closed"
    reply = await proxy.crawl("/")
    assert f'<p id="out">{expected}</p>' in reply.text
    assert "ttl=3600" in reply.headers["Cache-Status"]
