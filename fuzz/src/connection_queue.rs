//! Packets of connections that move between workers.

use std::net::SocketAddr;

use bolide_contract::settings::Protocol;
use bolide_scoreboard::connection_queue::{MovedConnection, PACKET_BYTES};

use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target {
    name: "connection_queue",
    check,
    seeds,
    words: &[b"\x01", b"\x04", b"\x06", b"\0\0", b"\xff\xff", b"\0\0\0\0\0\0\0\0\0\0\xff\xff"],
};

fn check(input: &[u8]) -> Result<Kind, String> {
    // The queue preserves the lengths of packets, and a wrong length is refused before the packet is parsed.
    let Some(packet) = input.first_chunk::<PACKET_BYTES>() else { return Ok(Kind::of("short")) };
    let Some(moved) = MovedConnection::of(packet) else { return Ok(Kind::of(("refused", packet[0], packet[3]))) };
    ensure!(moved.packet().as_ref() == Some(packet), "it is written as something else");
    Ok(Kind::of((
        (moved.protocol as u8, moved.client.map(|client| client.is_ipv4())),
        (moved.has_served, moved.has_input, moved.proxy_header_was_read, moved.is_shared),
    )))
}

fn seeds() -> Vec<Vec<u8>> {
    let clients: [Option<SocketAddr>; 4] = [
        None,
        Some(([192, 0, 2, 1], 80).into()),
        Some(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 65535).into()),
        Some(([0, 0, 0, 0, 0, 0xffff, 0xc000, 0x201], 1).into()),
    ];
    let of_client = |client| {
        Protocol::ALL.into_iter().zip([true, false].into_iter().cycle()).filter_map(move |(protocol, flag)| {
            let moved = MovedConnection {
                listener: 1 << 40,
                protocol,
                has_served: flag,
                has_input: !flag,
                proxy_header_was_read: flag,
                is_shared: !flag,
                client,
                deadline_ms: u64::MAX - 1,
            };
            moved.packet().map(Vec::from)
        })
    };
    clients.into_iter().flat_map(of_client).collect()
}
