"""The techniques by which page.html sends requests, by their names."""

# What chromium-headless-shell does not have, or does for no other site, by the names in page.html.
NOT_THERE = {
    *("ad-auction", "attribution", "background-fetch", "css-filter", "early-hints", "fenced-frame"),
    *("header-dns-prefetch", "header-preconnect", "header-source-map", "header-speculation"),
    *("header-stylesheet", "link-dns-prefetch", "link-icon", "link-manifest", "link-preconnect"),
    *("link-prerender", "media-session", "network-errors", "notification", "payment"),
    *("report-to", "reporting-endpoints", "scheme-chrome", "scheme-devtools", "scheme-file"),
    *("scheme-filesystem", "scheme-ftp", "scheme-gopher", "scheme-x-custom"),
    *("shared-storage-worklet", "source-map", "svg-use", "tcp-socket", "udp-socket", "view-source"),
    *("xml-entity", "xml-stylesheet", "xslt-document"),
}
# What fails on a redirect, or drops the query string in which the redirector finds where to.
NOT_REDIRECTED = {
    *(
        "alt-svc",
        "form-window",
        "report-uri",
        "service-worker-import",
        "sign-in",
        "speculation-prefetch",
    ),
    *("speculation-prerender", "websocket", "websocket-stream", "webtransport", "worker-socket"),
}
