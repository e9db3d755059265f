"""A network in which every private address is an address of this machine.

It consists of namespaces (network_namespaces(7)): nothing outside sees it, and nothing leaves it.
``INSIDE`` is the command that starts a program there; the program calls ``make()``.
"""

import os
import socket
import struct
import subprocess
import tempfile
import threading
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

DEVICE = "canary0"
SITE = "203.0.113.1"
ORIGIN = "10.8.0.1"
PUBLIC = "93.184.216.34"
# Kinds of addresses that no page may reach, each with one of them.
PRIVATE = {
    "loopback": "127.0.0.1",
    "another of loopback": "127.8.9.10",
    "loopback of IPv6": "::1",
    "10/8": "10.0.0.5",
    "172.16/12": "172.16.0.5",
    "192.168/16": "192.168.0.5",
    "link-local": "169.254.10.5",
    "metadata": "169.254.169.254",
    "metadata of another cloud": "100.100.100.200",
    "protocol assignments": "192.0.0.192",
    "unique local": "fd00:ec2::254",
    "link-local of IPv6": "fe80::5",
    "NAT64": "64:ff9b::a00:5",
    "the origin's": ORIGIN,
}
INSIDE = ["unshare", "--net", "--mount", "--propagation", "private"]
if os.geteuid() != 0:
    INSIDE[1:1] = ["--user", "--map-root-user"]
_SECONDS = 10
_PROTOCOLS = {socket.IPPROTO_TCP: "TCP", socket.IPPROTO_UDP: "UDP", socket.IPPROTO_ICMP: "ICMP"}
_ALL_FRAMES = 3
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_HEAD_BYTES = 128
_BUFFER_BYTES = 8 * 1024**2
_IPV4, _IPV6 = 0x0800, 0x86DD


def problem() -> str:
    """Why such a network cannot be created here, or ''."""
    try:
        subprocess.run(
            [*INSIDE, "ip", "link", "add", DEVICE, "type", "veth"],
            capture_output=True,
            timeout=_SECONDS,
            check=True,
            text=True,
        )
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    except subprocess.CalledProcessError as error:
        return f"no network namespace can be made: {error.stderr.strip()}"
    return ""


def make() -> None:
    """Assign the addresses, and start name servers on 127.0.0.53."""
    commands = [
        "ip link set lo up",
        f"ip link add {DEVICE} arp off type veth peer {DEVICE}-end",
        # An address that the kernel adds by itself a second later would be a change of the network, at
        # which Chromium gives up what it is loading.
        f"ip link set {DEVICE} addrgenmode none",
        f"ip link set {DEVICE}-end addrgenmode none",
        f"ip link set {DEVICE}-end up",
        f"ip link set {DEVICE} up",
        f"ip route add default dev {DEVICE}",
        f"ip -6 route add default dev {DEVICE}",
    ]
    for address in {SITE, PUBLIC, *PRIVATE.values()}:
        if not address.startswith("127.") and address != "::1":
            options = "nodad" if ":" in address else ""
            commands.append(f"ip address add {address} dev {DEVICE} {options}")
    for command in commands:
        subprocess.run(command.split(), check=True, timeout=_SECONDS)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("nameserver 127.0.0.53\noptions timeout:1 attempts:1\n")
        file.flush()
        bind = ["mount", "--bind", file.name, "/etc/resolv.conf"]
        subprocess.run(bind, check=True, timeout=_SECONDS)


class Packet(NamedTuple):
    """A packet: "TCP", "UDP", "ICMP" or a number; the destination, and its port if there is one."""

    protocol: str
    address: str
    port: int


_LAST = Packet("UDP", "127.1.2.3", 9)


class Capture:
    """Every packet in this network. ``leaving``: those to addresses outside of it.

    A thread reads them, because the kernel does not wait. Use it as a context manager.
    """

    def __init__(self) -> None:
        self.packets: set[Packet] = set()
        self.leaving: set[Packet] = set()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL_FRAMES))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._thread = threading.Thread(target=self._read, name="capture")

    def __enter__(self) -> "Capture":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The last packet, by which the thread knows that it has seen all others.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", (_LAST.address, _LAST.port))
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive()
        _, lost = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self._socket.close()
        self.packets.discard(_LAST)
        assert not lost, f"{lost} packets were not looked at"

    def _read(self) -> None:
        while _LAST not in self.packets:
            head, (device, kind, direction, *_) = self._socket.recvfrom(_HEAD_BYTES)
            # On loopback each packet is seen on its way out and in again.
            if direction == socket.PACKET_OUTGOING and (found := _parsed(kind, head)):
                (self.packets if device == "lo" else self.leaving).add(found)


def _parsed(kind: int, data: bytes) -> Packet | None:
    if kind == _IPV4:
        protocol, address = data[9], str(IPv4Address(data[16:20]))
        behind = data[(data[0] & 15) * 4 :]
    elif kind == _IPV6:
        protocol, address = data[6], str(IPv6Address(data[24:40]))
        behind = data[40:]
    else:
        return None
    name = _PROTOCOLS.get(protocol, str(protocol))
    (port,) = struct.unpack_from("!H", behind, 2) if name in ("TCP", "UDP") else (0,)
    return Packet(name, address, port)
