"""Pages with state that only scripts hold: what is visible in them is nowhere in the DOM."""

BLOBS = """
  const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><rect width="40" ' +
    'height="30"/></svg>';
  const blob = (text, type) => URL.createObjectURL(new Blob([text], { type }));
  const picture = () => blob(svg, "image/svg+xml");
"""
SHADOW = "const root = document.querySelector('x-a').attachShadow({ mode: 'open' });"
FORWARDS = "{ duration: 500, fill: 'forwards' }"
UNDEFINED = "body:has(x-a:not(:defined)) p { display: none }"
DEFINED = """<x-a></x-a><p>shown</p>
  <script>customElements.define('x-a', class extends HTMLElement {});</script>"""
PAGES = {
    "animation-that-reveals": f"""<p id="a" style="opacity: 0">revealed</p>
      <script>a.animate([{{ opacity: 0 }}, {{ opacity: 1 }}], {FORWARDS});</script>""",
    "animation-that-hides": f"""<p id="a">goes away</p>
      <script>a.animate([{{ opacity: 1 }}, {{ opacity: 0 }}], {FORWARDS});</script>""",
    "animation-of-visibility": f"""<p id="a" style="visibility: hidden">revealed</p><script>
      a.animate([{{ visibility: 'hidden' }}, {{ visibility: 'visible' }}], {FORWARDS});</script>""",
    "animation-in-a-shadow": f"""<x-a></x-a><script>{SHADOW}
      root.innerHTML = '<p style="opacity: 0">revealed</p>';
      root.firstChild.animate([{{ opacity: 0 }}, {{ opacity: 1 }}], {FORWARDS});</script>""",
    "animation-by-scrolling": """<p style="height: 3000px">above
      <p id="a" style="opacity: 0">revealed</p>
      <script>a.animate({ opacity: [0, 1] }, { timeline: new ViewTimeline({ subject: a }),
        rangeStart: "entry 0%", rangeEnd: "cover 30%", fill: "both" });</script>""",
    "smil": """<svg><text y="20" display="none">revealed
      <set id="a" attributeName="display" to="inline" begin="indefinite" fill="freeze"/></text></svg>
      <script>a.beginElement();</script>""",
    "rules-for-open-popovers": """
      <style>#n { display: none } #n:popover-open { display: block }</style>
      <div id="n" popover="manual">news</div><script>n.showPopover();</script>""",
    "rules-for-closed-popovers": """
      <style>#n:not(:popover-open) { opacity: 0 }</style>
      <div id="n" popover="manual">news</div><script>n.showPopover();</script>""",
    "rules-for-modal-dialogs": """
      <style>dialog { display: none } dialog:modal { display: block }</style>
      <dialog id="d">news</dialog><script>d.showModal();</script>""",
    "rules-for-mixed-checkboxes": """
      <style>p { display: none } :indeterminate ~ p { display: block }</style>
      <input type="checkbox" id="c" aria-hidden="true"><p>some</p>
      <script>c.indeterminate = true;</script>""",
    "rules-for-defined-elements": f"<style>{UNDEFINED}</style>{DEFINED}",
    "linked-rules-for-defined-elements": f'<link rel="stylesheet" href="/defined.css">{DEFINED}',
    "rules-of-a-host-that-is-defined": """<x-a></x-a><script>
      customElements.define('x-a', class extends HTMLElement { constructor() { super();
        this.attachShadow({ mode: 'open' }).innerHTML =
          '<style>p { display: none } :host(:defined) p { display: block }</style><p>shown</p>'; } });
      </script>""",
    "rules-for-states-of-a-host": """<x-a></x-a><script>
      customElements.define('x-a', class extends HTMLElement { constructor() { super();
        this.attachInternals().states.add('on'); this.attachShadow({ mode: 'open' }).innerHTML =
          '<style>p { display: none } :host(:state(on)) p { display: block }</style><p>shown</p>'; } });
      </script>""",
    "frame-written": """<iframe id="f"></iframe><script>
      const inside = f.contentDocument; inside.open(); inside.write('<p>written'); inside.close();
      </script>""",
    "frame-with-adopted-styles": """<iframe id="f"></iframe><script>
      const inside = f.contentDocument; inside.body.innerHTML = '<p>hidden</p>rest';
      const sheet = new f.contentWindow.CSSStyleSheet(); sheet.replaceSync('p { display: none }');
      inside.adoptedStyleSheets = [sheet];</script>""",
    "frame-with-a-blob": f"""<iframe id="f"></iframe>
      <script>{BLOBS} f.src = blob('<p>within', 'text/html');</script>""",
    "frame-with-animations": f"""<iframe id="f"></iframe><script>
      const inside = f.contentDocument; inside.body.innerHTML = '<p style="opacity: 0">revealed</p>';
      inside.querySelector('p').animate([{{ opacity: 0 }}, {{ opacity: 1 }}], {FORWARDS});</script>""",
    "frame-with-defined-elements": """<iframe srcdoc="<style>:not(:defined) { display: none }</style>
      <x-a>inner</x-a><script>customElements.define('x-a', class extends HTMLElement {});</script>">
      </iframe>""",
    "frame-of-a-script": """<iframe src="javascript:'<p>of a script'"></iframe>""",
    "frame-that-a-script-navigates": """<iframe id="f"></iframe>
      <script>f.contentWindow.location = '/inner';</script>""",
    "frame-with-drawings-and-values": """<iframe id="f"></iframe><script>
      const inside = f.contentDocument;
      inside.body.innerHTML = '<canvas width="30" height="20"></canvas><input>';
      inside.querySelector('canvas').getContext('2d').fillRect(0, 0, 9, 9);
      inside.querySelector('input').value = 'typed';</script>""",
    "select-without-a-choice": """<select id="s"><option>A<option>B</select>
      <script>s.selectedIndex = -1;</script>""",
    "select-with-choices": """<select id="s" multiple><option>A<option>B<option>C</select>
      <script>s.options[1].selected = s.options[2].selected = true;</script>""",
    "canvas": """<canvas id="c" width="60" height="40" style="width: 30px">no canvas</canvas>
      <script>c.getContext('2d').fillRect(0, 0, 9, 9);</script>""",
    "canvas-of-a-bitmap": """<canvas id="c" width="60" height="40"></canvas><script>
      const off = new OffscreenCanvas(60, 40); off.getContext('2d').fillRect(0, 0, 9, 9);
      c.getContext('bitmaprenderer').transferFromImageBitmap(off.transferToImageBitmap());</script>""",
    "canvas-in-a-shadow": f"""<x-a></x-a><script>{SHADOW}
      root.innerHTML = '<canvas width="30" height="20">';
      root.firstChild.getContext('2d').fillRect(0, 0, 9, 9);</script>""",
    "canvas-under-a-policy": """<meta http-equiv="Content-Security-Policy"
      content="default-src 'self' 'unsafe-inline'"><canvas id="c" width="60" height="40"></canvas>
      <script>c.getContext('2d').fillRect(0, 0, 9, 9);</script>""",
    "blob-under-a-policy": f"""<meta http-equiv="Content-Security-Policy"
      content="default-src 'self' 'unsafe-inline'; img-src blob:"><img id="i">
      <script>{BLOBS} i.src = picture();</script>""",
    "blob-that-is-revoked": f"""<img id="i"><script>{BLOBS}
      const url = picture(); i.onload = () => URL.revokeObjectURL(url); i.src = url;</script>""",
    "blob-in-srcset": f'<img id="i"><script>{BLOBS} i.srcset = `${{picture()}} 1x`;</script>',
    "blob-in-a-picture": f"""<picture><source id="s"><img id="i"></picture>
      <script>{BLOBS} s.srcset = i.src = picture();</script>""",
    "blob-in-a-style": f"""<p id="p">hidden</p>rest<script>{BLOBS}
      const style = document.createElement('style');
      style.textContent = `@import url(${{blob('#p {{ display: none }}', 'text/css')}})`;
      document.head.append(style);</script>""",
    "blob-of-styles": f"""<p id="p">hidden</p>rest<script>{BLOBS}
      const link = Object.assign(document.createElement('link'), {{ rel: 'stylesheet' }});
      link.href = blob('#p {{ display: none }}', 'text/css'); document.head.append(link);</script>""",
    "blob-in-a-background": f"""<p id="p">text</p>
      <script>{BLOBS} p.style.backgroundImage = `url(${{picture()}})`;</script>""",
    "blob-of-a-poster": f"""<video id="v" width="40" height="30"></video>
      <script>{BLOBS} v.poster = picture();</script>""",
    "blob-in-svg": f"""<svg><image id="i" width="40" height="30"/></svg>
      <script>{BLOBS} i.setAttribute('href', picture());</script>""",
}
