"""Headers of proxies in requests of pages."""

import pytest
from multidict import CIMultiDict
from yarl import URL

from prerender.http.forwarding_headers import publish, remove_forwarding

OF_PROXIES = """
Forwarded X-Forwarded-For X-Forwarded-Host X_Forwarded_For X-Forwarded X-Real-IP True-Client-IP Via
CF-Connecting-IP Fastly-Client-IP X-Client-IP X-Cluster-Client-IP X-Azure-ClientIP X-ProxyUser-Ip
X-Original-URL X-Original-Host X-Original-Forwarded-For X-Rewrite-URL X-Envoy-Original-Path X-Host
Remote-User X-Remote-User REMOTE_ADDR X-SSL-Client-Cert SSL-Client-Verify X-Client-DN
X-HTTP-Host-Override
X-Envoy-External-Address CloudFront-Viewer-Address X-Azure-SocketIP X-Orig-Client-Addr X-Remote-Address
X-Goog-Authenticated-User-Email Cf-Access-Authenticated-User-Email X-Authenticated-User
X-Authenticated-Userid X-MS-Client-Principal-Name X-Auth-Request-User X-WebAuth-User Remote-Email
X-Amzn-Oidc-Identity OIDC_CLAIM_sub Cf-Access-Jwt-Assertion X-AppEngine-User-Email
X-ARR-ClientCert X-Amzn-Mtls-Clientcert X-Client-Certificate X-SSL-Cert X-ARR-SSL WL-Proxy-SSL
X-Scheme X-Url-Scheme Front-End-Https CF-Visitor X-Request-Uri X-Originating-Url X-Original-Scheme
X-Middleware-Subrequest X-Accel-Redirect X-Accel-Mapping X-Sendfile X-Sendfile-Type Proxy
X.Forwarded.For X!Scheme
"""
OF_APPLICATIONS = """
Host Authorization X-CSRF-Token X-Requested-With X-HTTP-Method-Override Content-Type apikey
X-Client-Info X-Client-Version X-Request-ID X-Remote-Config-Version X-Original-Filename Client
Idempotency-Key X-Shopify-Storefront-Access-Token X-Firebase-Client If-Match traceparent
X-Api-Key X-Auth-Token X-CSRFToken X-XSRF-TOKEN X-User-Id X-User-Email X-Correlation-ID X-Tenant
X-MS-Client-Request-Id X-Goog-Api-Key X-Goog-AuthUser X-Amz-Security-Token X-Is-Authenticated
X-WebAuthn-Challenge X-JWT-Token X-Assertion X-OIDC-Token CF-Turnstile-Response CF-Access-Client-Id
Access-Control-Request-Method Access-Control-Request-Headers X-Color-Scheme Sec-CH-Prefers-Color-Scheme
X-Shipping-Address X-Requested-By X-Request-Source X-Url X-Middleware-Prefetch X-Proxy-Target
"""


def test_only_what_proxies_say_is_removed() -> None:
    names = OF_APPLICATIONS.split()
    headers = CIMultiDict(dict.fromkeys([*OF_PROXIES.split(), *names], "127.0.0.1"))
    remove_forwarding(headers)
    assert list(headers) == names


@pytest.mark.parametrize("location", ["http://[", "http://[]@", "//a[::1]@", "https:///a", ""])
def test_locations_that_are_no_urls_stay(location: str) -> None:
    assert publish(location, URL("http://app"), URL("https://www.example.com")) == location
