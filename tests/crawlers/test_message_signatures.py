"""HTTP Message Signatures: the vectors of RFC 9421 and of the drafts, and what is refused."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from multidict import CIMultiDict

from prerender.crawlers.key_directories import PROOF_TAG, proven_keys, thumbprint_of
from prerender.crawlers.message_signatures import (
    CLOCK_SKEW_SECONDS,
    MOST_COMPONENTS,
    MOST_SIGNATURES,
    NotVerified,
    SignedRequest,
    SignedResponse,
    dictionary,
    signatures,
    verify,
)
from tests.support.signed_agent import signed

# RFC 9421, appendix B.1.4.
TEST_KEY = Ed25519PublicKey.from_public_bytes(
    base64.urlsafe_b64decode("JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs=")
)
TEST_KEYID = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
KEY = Ed25519PrivateKey.generate()
AGENT = "https://signature-agent.test"


def message(
    *lines: tuple[str, str], url: str = "https://example.com/", method: str = "GET"
) -> SignedRequest:
    return SignedRequest(method, url, CIMultiDict(lines))


def check(request: SignedRequest | SignedResponse, key: Ed25519PublicKey, tag: str = "") -> None:
    """Verify the first signature with a tag."""
    field = next(v for name, v in request.headers.items() if name.lower() == "signature-input")
    verify(request, signatures(field, tag)[0], key)


# Appendix B.2.6. The tag of none is ''.
RFC_LINES = [
    ("Host", "example.com"),
    ("Date", "Tue, 20 Apr 2021 02:07:55 GMT"),
    ("Content-Type", "application/json"),
    ("Content-Length", "18"),
    (
        "Signature-Input",
        'sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length")'
        ';created=1618884473;keyid="test-key-ed25519"',
    ),
    (
        "Signature",
        "sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5W"
        "PpBKRCw==:",
    ),
]
RFC_URL = "https://example.com/foo?param=Value&Pet=dog"


def test_the_vector_of_rfc_9421() -> None:
    request = message(*RFC_LINES, url=RFC_URL, method="POST")
    [signature] = signatures(RFC_LINES[4][1], "")
    assert (signature.label, signature.keyid) == ("sig-b26", "test-key-ed25519")
    assert (signature.created, signature.expires) == (1618884473, None)
    verify(request, signature, TEST_KEY)
    for changed in (
        message(*RFC_LINES, url=RFC_URL),
        message(*RFC_LINES, url="https://example.net/foo", method="POST"),
        message(*RFC_LINES, url="https://example.com/bar", method="POST"),
        message(*RFC_LINES, ("Date", "again"), url=RFC_URL, method="POST"),
    ):
        with pytest.raises(NotVerified, match="does not match"):
            verify(changed, signature, TEST_KEY)
    with pytest.raises(NotVerified, match="does not match the key and this POST request for exam"):
        verify(request, signature, KEY.public_key())


# draft-ietf-webbotauth-httpsig-protocol-01, appendix "Test Vectors", EdDSA.
DRAFT = [
    (
        f'agent2="{AGENT}"',
        'sig2=("@authority" "signature-agent";key="agent2");created=1735689600'
        f';keyid="{TEST_KEYID}";alg="ed25519";expires=4889289600;nonce="n9p433xm+NJ3ph3upfBIGmsuw'
        'Hw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth"',
        "sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEw"
        "YCCg==:",
    ),
    (
        f'"{AGENT}"',
        f'sig2=("@authority" "signature-agent");created=1735689600;keyid="{TEST_KEYID}"'
        ';alg="ed25519";expires=1735693200;nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZY'
        'adIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==";tag="web-bot-auth"',
        "sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3r"
        "LWBA==:",
    ),
]


@pytest.mark.parametrize(("agent", "signature_input", "signature"), DRAFT)
def test_the_vectors_of_the_draft(agent: str, signature_input: str, signature: str) -> None:
    lines = (("Signature-Input", signature_input), ("Signature", signature))
    url = "https://example.com/path/to/resource"
    check(message(("Signature-Agent", agent), *lines, url=url), TEST_KEY, "web-bot-auth")
    other = message(("Signature-Agent", agent.replace("-agent", "")), *lines, url=url)
    with pytest.raises(NotVerified, match="does not match"):
        check(other, TEST_KEY, "web-bot-auth")


DIRECTORY = (
    b'{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"'
    b',"x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","use":"sig"}]}'
)


def test_the_vector_of_a_signed_directory() -> None:
    lines = [
        ("Content-Digest", "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:"),
        (
            "Signature-Input",
            'binding=("@authority";req "content-digest");created=1735689600;expires=4889289600'
            f';keyid="{TEST_KEYID}";tag="http-message-signatures-directory"',
        ),
        (
            "Signature",
            "binding=:l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1"
            "Gpz7gOVBg==:",
        ),
    ]
    url = f"{AGENT}/.well-known/http-message-signatures-directory"
    answer = SignedResponse(200, CIMultiDict(lines), message(url=url))
    [proof] = signatures(lines[1][1], PROOF_TAG)
    verify(answer, proof, TEST_KEY, DIRECTORY)
    with pytest.raises(NotVerified, match="Content-Digest does not match"):
        verify(answer, proof, TEST_KEY, DIRECTORY + b" ")
    elsewhere = SignedResponse(200, CIMultiDict(lines), message(url="https://evil.test/"))
    with pytest.raises(NotVerified, match="does not match"):
        verify(elsewhere, proof, TEST_KEY, DIRECTORY)
    # Everybody knows the private key, so an agent must not have it.
    assert proven_keys(answer, DIRECTORY, 1735689600) == {}


def test_thumbprints() -> None:
    """RFC 8037, appendix A.3, and the key of RFC 9421."""
    x = base64.urlsafe_b64decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=")
    assert thumbprint_of(x) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert thumbprint_of(TEST_KEY.public_bytes_raw()) == TEST_KEYID


LINES = [
    ("Host", "www.example.com"),
    ("X-OWS-Header", "Leading and trailing whitespace."),
    ("Cache-Control", "max-age=60"),
    ("Cache-Control", "must-revalidate"),
    ("Example-Dict", " a=1,    b=2;x=1;y=2,   c=(a   b    c), d"),
    ("Example-Header", "value, with, lots"),
    ("Example-Header", "of, commas"),
    ("X-Empty-Header", ""),
]
URL = (
    "https://WWW.example.com:443/path?var=this%20is%20a%20big%0Amultiline%20value"
    "&bar=with+plus+whitespace&fa%C3%A7ade%22%3A%20=something&qux="
)
QUERY = URL.partition("?")[2]
# Components and their values, as in section 2.
COMPONENTS = [
    ('"host"', "www.example.com"),
    ('"x-ows-header"', "Leading and trailing whitespace."),
    ('"cache-control"', "max-age=60, must-revalidate"),
    ('"cache-control";sf', "max-age=60, must-revalidate"),
    ('"x-empty-header"', ""),
    ('"example-dict"', "a=1,    b=2;x=1;y=2,   c=(a   b    c), d"),
    ('"example-dict";key="a"', "1"),
    ('"example-dict";key="d"', "?1"),
    ('"example-dict";key="b"', "2;x=1;y=2"),
    ('"example-dict";key="c"', "(a b c)"),
    ('"example-header"', "value, with, lots, of, commas"),
    ('"example-header";bs', ":dmFsdWUsIHdpdGgsIGxvdHM=:, :b2YsIGNvbW1hcw==:"),
    ('"@method"', "GET"),
    ('"@authority"', "www.example.com"),
    ('"@scheme"', "https"),
    ('"@target-uri"', URL),
    ('"@request-target"', f"/path?{QUERY}"),
    ('"@path"', "/path"),
    ('"@query"', f"?{QUERY}"),
    ('"@query-param";name="var"', "this%20is%20a%20big%0Amultiline%20value"),
    ('"@query-param";name="bar"', "with%20plus%20whitespace"),
    ('"@query-param";name="fa%C3%A7ade%22%3A%20"', "something"),
    ('"@query-param";name="qux"', ""),
]


@pytest.mark.parametrize(("identifier", "value"), COMPONENTS)
def test_components(identifier: str, value: str) -> None:
    for signed_value, matches in ((value, True), (f"{value}x", False)):
        headers = signed(KEY, [(identifier, signed_value)], ';keyid="k"')
        request = message(*LINES, *headers.items(), url=URL)
        if matches:
            check(request, KEY.public_key())
        else:
            with pytest.raises(NotVerified, match="does not match"):
                check(request, KEY.public_key())


@pytest.mark.parametrize(
    ("components", "reason"),
    [
        ('"missing"', "not found"),
        ('"host" "host"', "multiple times"),
        ('"Host"', "lowercase"),
        ('"@authority";req', "only valid in a response"),
        ('"@status"', "Unexpected"),
        ('"@nothing"', "Unknown"),
        ('"@signature-params"', "cannot be signed"),
        ('"host";unknown', "Unknown parameter"),
        ('"host";tr', "not supported"),
        ('"host";bs;sf', "not supported"),
        ('"example-dict";sf', "Unknown Structured Field type"),
        ('"example-dict";key="z"', "no member"),
        ('"example-dict";key=1', "must be a string"),
        ('"x-ows-header";key="a"', "not a Dictionary"),
        ('"@query-param"', "name"),
        ('"@query-param";name="none"', "not found"),
        ("host", "not a list of components"),
        ("1", "not a list of components"),
    ],
)
def test_components_that_are_refused(components: str, reason: str) -> None:
    request = message(
        *LINES,
        ("Signature-Input", f'sig1=({components});keyid="k"'),
        ("Signature", "sig1=:YQ==:"),
        url=URL,
    )
    with pytest.raises(NotVerified, match=reason):
        check(request, KEY.public_key())


@pytest.mark.parametrize(
    ("signature_input", "signature", "reason"),
    [
        ("sig1", "sig1=:YQ==:", "not a list of components"),
        ("sig1=1", "sig1=:YQ==:", "not a list of components"),
        ('sig1="a"', "sig1=:YQ==:", "not a list of components"),
        ("sig1=(", "sig1=:YQ==:", "malformed"),
        ("Sig1=()", "sig1=:YQ==:", "malformed"),
        ("sig1=(),", "sig1=:YQ==:", "malformed"),
        ("sig1=() sig2=()", "sig1=:YQ==:", "malformed"),
        ("sig1=(), sig1=()", "sig1=:YQ==:", "sig1 twice"),
        ("sig1=();keyid=1", "sig1=:YQ==:", "keyid is not a string"),
        ("sig1=();tag=web", "sig1=:YQ==:", "tag is not a string"),
        ("sig1=();tag=:YQ==:", "sig1=:YQ==:", "tag is not a string"),
        ('sig1=();created="1"', "sig1=:YQ==:", "created is not an integer"),
        ("sig1=();created", "sig1=:YQ==:", "created is not an integer"),
        ("sig1=();expires=1.5", "sig1=:YQ==:", "expires is not an integer"),
        ("sig1=();expires=@1", "sig1=:YQ==:", "expires is not an integer"),
        ("sig1=();created=1000000000000000", "sig1=:YQ==:", "malformed"),
        ("sig1=()", "sig1=:YQ==:", "keyid"),
        ('sig1=();keyid="k";alg="rsa-pss-sha512"', "sig1=:YQ==:", "Unexpected algorithm"),
        ('sig1=();keyid="k";alg="hmac-sha256"', "sig1=:YQ==:", "Unexpected algorithm"),
        ('sig1=();keyid="k";unknown=1', "sig1=:YQ==:", "unknown"),
        ('sig1=();keyid="k"', "sig1=:YQ==:", "does not match"),
        ('sig1=();keyid="k"', "sig1=::", "does not match"),
        ('sig1=();keyid="k"', "sig1=YQ==", 'Malformed structured header field "Signature"'),
        ('sig1=();keyid="k"', 'sig1="YQ=="', "must be a Byte Sequence"),
        ('sig1=();keyid="k"', "sig1", "must be a Byte Sequence"),
        ('sig1=();keyid="k"', "sig2=:YQ==:", "different labels"),
        ('sig1=();keyid="k"', "sig1=:YQ==:, sig1=:YQ==:", "Malformed"),
        (", ".join(f"s{i}=()" for i in range(MOST_SIGNATURES + 1)), "a=:YQ==:", "more than 8"),
        ('a=("b" ' + '"c" ' * MOST_COMPONENTS + ")", "a=:YQ==:", "more than 32 components"),
        ("sig1=(\xe9)", "sig1=:YQ==:", "malformed"),
    ],
)
def test_malformed_signatures(signature_input: str, signature: str, reason: str) -> None:
    request = message(("Signature-Input", signature_input), ("Signature", signature))
    with pytest.raises(NotVerified, match=reason):
        check(request, KEY.public_key())


def test_each_signature_stands_for_itself() -> None:
    """One may cover another (RFC 9421, section 4.3), and a wrong one does not spoil the others."""
    inner = signed(KEY, [('"@method"', "GET")], ';keyid="k";tag="a"', "in")
    other = Ed25519PrivateKey.generate()
    covered = inner["Signature"].removeprefix("in=")
    outer = signed(other, [('"signature";key="in"', covered)], ';keyid="o";tag="b"', "out")
    request = message(*inner.items(), *outer.items())
    both = f"{inner['Signature-Input']}, {outer['Signature-Input']}"
    verify(request, signatures(both, "a")[0], KEY.public_key())
    verify(request, signatures(both, "b")[0], other.public_key())
    with pytest.raises(NotVerified, match="does not match"):
        verify(request, signatures(both, "b")[0], KEY.public_key())


def test_times() -> None:
    [signature] = signatures("a=();created=1000;expires=2000", "")
    signature.check_time(1000 - CLOCK_SKEW_SECONDS)
    signature.check_time(2000 + CLOCK_SKEW_SECONDS)
    with pytest.raises(NotVerified, match="created 31 s in the future"):
        signature.check_time(1000 - CLOCK_SKEW_SECONDS - 1)
    with pytest.raises(NotVerified, match="expired 31 s ago"):
        signature.check_time(2000 + CLOCK_SKEW_SECONDS + 1)


def test_repeated_members_are_refused() -> None:
    assert dictionary("A", "a=1, b;x=2") == {"a": (1, {}), "b": (True, {"x": 2})}
    for value in ("a=1, b=2, a=3", "b;a;a=2"):
        with pytest.raises(NotVerified, match="A has a twice"):
            dictionary("A", value)
