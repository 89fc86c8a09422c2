"""Who is behind a login: names from JAAS strings, subjects of certificates as Java spells them, and what cannot be known here."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mm2mgr.kafka.access import KafkaAccess
from mm2mgr.live.principals import principal_of, subject_of


def pem(*steps: x509.RelativeDistinguishedName) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    authority = trustme.CA().cert_pem.bytes()
    issued = x509.load_pem_x509_certificate(authority)
    built = x509.CertificateBuilder(
        issuer_name=issued.subject,
        subject_name=x509.Name(steps),
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=issued.not_valid_before_utc,
        not_valid_after=issued.not_valid_after_utc,
    ).sign(key, hashes.SHA256())
    return built.public_bytes(serialization.Encoding.PEM).decode()


def step(*pairs: tuple[x509.ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
    return x509.RelativeDistinguishedName([x509.NameAttribute(oid, text) for oid, text in pairs])


# The right-hand sides are what java.security of JDK 17 printed for such certificates (X500Principal.getName).
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            [
                step((NameOID.COUNTRY_NAME, "DE")),
                step((NameOID.ORGANIZATION_NAME, "Example, Inc.")),
                step((NameOID.COMMON_NAME, "mirror")),
            ],
            r"CN=mirror,O=Example\, Inc.,C=DE",
        ),
        (
            [step((NameOID.COMMON_NAME, " lead #x ;=y ")), step((NameOID.LOCALITY_NAME, "Köln"))],
            r"L=Köln,CN=\ lead \#x \;\=y\ ",
        ),
        (
            [step((NameOID.EMAIL_ADDRESS, "a@b.c")), step((NameOID.COMMON_NAME, "m"))],
            "CN=m,1.2.840.113549.1.9.1=#16056140622e63",
        ),
    ],
)
def test_subjects_as_java_spells_them(steps: list[x509.RelativeDistinguishedName], expected: str) -> None:
    assert subject_of(pem(*steps)) == expected


@pytest.mark.parametrize(
    "damaged", [lambda text: text[:200], lambda text: text.replace("M", "?"), lambda _: "", lambda _: "x"]
)
def test_a_damaged_certificate_has_no_subject(damaged: object) -> None:
    whole = pem(step((NameOID.COMMON_NAME, "m")))
    assert subject_of(damaged(whole)) is None  # type: ignore[operator]
    cut = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
    assert subject_of(cut) is None


@pytest.mark.parametrize(
    "content", [b"", b"0\x00", b"0\x020\x00", bytes.fromhex("300e300c" + "0200" * 4 + "30043102") + b"0\x00"]
)
def test_what_only_looks_like_a_certificate_has_no_subject(content: bytes) -> None:
    text = base64.b64encode(content).decode()
    assert subject_of(f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----") is None


def login(**security: str) -> KafkaAccess:
    return KafkaAccess("a", "a:9092", {key.replace("__", "."): value for key, value in security.items()})


def test_names_of_logins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jaas = 'x.ScramLoginModule required username="mirror" password="s3cret";'
    sasl = {"security__protocol": "SASL_SSL", "sasl__mechanism": "SCRAM-SHA-512"}
    assert principal_of(login(**sasl, sasl__jaas__config=jaas)).name == "User:mirror"
    monkeypatch.setenv("MIRROR_JAAS", jaas)
    assert principal_of(login(**sasl, sasl__jaas__config="${env:MIRROR_JAAS}")).name == "User:mirror"
    unknown = principal_of(login(**sasl, sasl__jaas__config="${vault:kv:jaas}"))
    assert (unknown.name, unknown.is_known) == ("User:<name behind this login>", False)
    assert principal_of(login()).name == "User:ANONYMOUS"
    assert principal_of(login(security__protocol="SSL")).name == "User:ANONYMOUS"
    store = tmp_path / "mirror.pem"
    store.write_text(pem(step((NameOID.COMMON_NAME, "mirror"))))
    own = {"security__protocol": "SSL", "ssl__keystore__location": str(store)}
    assert principal_of(login(**own, ssl__keystore__type="PEM")).name == "User:CN=mirror"
    assert principal_of(login(**own, ssl__keystore__type="PKCS12")).is_known is False
    assert (
        principal_of(login(security__protocol="SSL", ssl__keystore__certificate__chain=store.read_text())).name
        == "User:CN=mirror"
    )
