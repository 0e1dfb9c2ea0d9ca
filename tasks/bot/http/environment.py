"""How the outside is reached from here: the proxy and the certificates that the environment names.

Promises what `requests` would find: HTTP_PROXY and its kin with NO_PROXY, SOCKS where PySocks is installed, and
REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE in the place of certifi's certificates. Looks once, when the first call is made.
"""

from __future__ import annotations

import os
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import certifi
from urllib3 import HTTPConnectionPool, PoolManager, ProxyManager, Timeout, make_headers
from urllib3.util import Url, parse_url
from urllib3.util.ssl_ import create_urllib3_context

#: A proxy set for the outside has no say on this machine, where a local Bot API server or the simulator runs.
LOOPBACK = ("127.0.0.1", "[::1]", "localhost")

BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def pool_of(url: Url, connect_timeout_s: float) -> HTTPConnectionPool:
    """What makes connections to it. Raises OSError and urllib3's HTTPError."""
    proxy = _proxy(url)
    how: dict[str, Any] = {"timeout": Timeout(connect=connect_timeout_s)}
    if url.scheme == "https" or proxy.startswith("https:"):
        how["ssl_context"] = _tls()
    return _manager(proxy, how).connection_from_url(url.url)


def _manager(proxy: str, how: dict[str, Any]) -> PoolManager:
    if not proxy:
        return PoolManager(**how)
    if proxy.startswith("socks"):
        return _through_socks(proxy, how)
    auth = parse_url(proxy).auth
    headers = make_headers(proxy_basic_auth=auth) if auth else None
    return ProxyManager(proxy, proxy_headers=headers, proxy_ssl_context=how.get("ssl_context"), **how)


def _through_socks(proxy: str, how: dict[str, Any]) -> PoolManager:
    if find_spec("socks") is None:
        raise OSError(None, "a SOCKS proxy needs PySocks: pip install pysocks")
    from urllib3.contrib.socks import SOCKSProxyManager

    return SOCKSProxyManager(proxy, **how)


def _proxy(url: Url) -> str:
    """Empty: none."""
    if url.host in LOOPBACK or not getproxies():
        return ""
    # Who is reached without one is said in many ways. Imported only where it is needed: it takes time and memory.
    from requests.utils import get_environ_proxies, select_proxy

    found = select_proxy(url.url, get_environ_proxies(url.url)) or ""
    return f"http://{found}" if found and "://" not in found else found


def _tls() -> ssl.SSLContext:
    """One for all connections: reading a bundle takes a hundredth of a second."""
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    name = next((name for name in BUNDLES if os.environ.get(name)), "")
    bundle = Path(os.environ[name] if name else certifi.where())
    if not bundle.exists():
        raise OSError(None, f"{name}={bundle} names no file")
    if bundle.is_dir():
        context.load_verify_locations(capath=bundle)
    else:
        context.load_verify_locations(cafile=bundle)
    return context
