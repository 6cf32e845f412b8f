"""Packets of a capture that are counted by a function as they come.

Thread: https://github.com/andreafabrizi/rtmpSnoop/pull/14
Looks like: memory climbs with the packets for as long as the capture runs, although the function keeps none.
Fix: `sniff(..., store=False)`.
"""

import io
import sys
import time
from collections import Counter

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.sendrecv import sniff
from scapy.utils import PcapWriter


def capture(packets: int) -> io.BytesIO:
    """A file with so many packets of a meter."""
    file = io.BytesIO()
    writer = PcapWriter(file, linktype=1)
    reading = bytes(Ether(dst="02:00:00:00:00:01") / IP(dst="10.0.0.1") / UDP(sport=40_000) / Raw(bytes(500)))
    for _ in range(packets):
        writer.write(reading)
    writer.flush()
    file.seek(0)
    return file


def main(rounds: int) -> None:
    seen: Counter[int] = Counter()

    def count(packet: Packet) -> None:
        seen[packet[UDP].dport] += 1
        if seen.total() % 300 == 0:
            time.sleep(0.1)

    sniff(offline=capture(300 * rounds), prn=count)  # <- here


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
