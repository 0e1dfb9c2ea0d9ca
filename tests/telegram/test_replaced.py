"""The functions of urllib3 and requests that chatlanes/telegram replaces are those that were reviewed."""

from __future__ import annotations

import sys

import pytest

from celery_lanes.fast.table import digest_of

#: It is that of http.client, whose source differs between Python 3.11.2, 3.11.7 and 3.12
HTTP_CLIENT_SEND = "1a7852dd2f48 fdc99bf3088b af499a33ac2c"
#: The replaced function, its replacement, and the digest of its source.
REPLACED = [
    ("urllib3.connection:HTTPConnection.request", "http_client.py: ConnectionCls", "751c8aa0eb50"),
    ("urllib3.connection:HTTPConnection.send", "http_client.py: ConnectionCls", HTTP_CLIENT_SEND),
    (
        "urllib3.connectionpool:HTTPConnectionPool._new_conn",
        "http_client.py: ConnectionCls",
        "243b34ca0fe6",
    ),
    ("http.client:HTTPConnection.getresponse", "http_client.py: response_class", "cde52757ebba"),
    ("requests.adapters:HTTPAdapter.cert_verify", "http_client.py: cert_verify", "d5b2e7394e8c"),
    ("requests.adapters:HTTPAdapter.get_connection_with_tls_context", "http_client.py", "cf749a3be9e2"),
]


@pytest.mark.parametrize(("name", "our_file", "digests"), REPLACED, ids=[name for name, *_ in REPLACED])
def test_replaced_code_is_unchanged(name: str, our_file: str, digests: str) -> None:
    if name.startswith("http.client:") and sys.version_info[:2] != (3, 11):
        pytest.skip("reviewed in Python 3.11")
    assert digest_of(name) in digests.split(), f"{name} has changed: see chatlanes/telegram/{our_file}"
