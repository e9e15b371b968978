"""Which addresses an alert may be sent to.

Who may write an alert channel must not thereby reach what only the operator can reach: the cloud's
metadata service above all, then everything inside. The name is resolved once, and the request goes
to the address that was checked, so a name that answers differently the second time gains nothing.
"""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
"""Addresses of a host for a port, best first; raises OSError when there are none."""

_METADATA: frozenset[Address] = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254",  # most clouds; link-local anyway
            "fd00:ec2::254",  # AWS over IPv6
            "fd20:ce::254",  # Google over IPv6
            "100.100.100.200",  # Alibaba
            "192.0.0.192",  # Oracle
            "168.63.129.16",  # Azure's wire server, a public address
        ),
    )
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class AddressRefusedError(Exception):
    """The URL leads to an address that alerts are not sent to."""


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Ask the system."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def allowed_addresses(
    host: str, *, port: int, allow_private: bool, resolve: Resolve
) -> tuple[str, ...]:
    """Resolve a host and return the addresses that may be connected to.

    Raises:
        AddressRefusedError: There are addresses, and none may be used.
        OSError: The host could not be resolved.
    """
    refused: list[str] = []
    allowed: list[str] = []
    for text in resolve(host, port):
        if why := refusal(text, allow_private=allow_private):
            refused.append(f"{text} is {why}")
        else:
            allowed.append(text)
    if not allowed:
        raise AddressRefusedError(f"{host} is refused: {'; '.join(refused) or 'no address'}")
    return tuple(allowed)


def refusal(text: str, *, allow_private: bool) -> str:
    """Return why an address is refused, "" when it is not."""
    address = _embedded(ipaddress.ip_address(text))
    if address in _METADATA:
        return "a metadata service"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast or address.is_unspecified:
        return "no address of one host"
    if not allow_private and _is_private(address):
        return "private (set allowPrivate on the channel if that is meant)"
    return ""


def _is_private(address: Address) -> bool:
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return site_local or address.is_reserved or not address.is_global


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if it stands for one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address
