//! The source address of a request: the socket's address, or the one that a trusted proxy reports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use poem::Request;

/// The source of a request that a page makes in this process on behalf of its visitor: the visitor's address.
#[derive(Clone, Copy, Debug)]
pub struct Source(pub IpAddr);

/// Returns the source IP. It reads `X-Forwarded-For` from the end, where the nearest proxy appends, and continues as long
/// as a trusted proxy reported the entry. An IPv4-mapped IPv6 address counts as the IPv4 address.
pub fn source_ip(request: &Request, trusted_proxies: &[IpNet]) -> IpAddr {
    if let Some(Source(ip)) = request.extensions().get() {
        return *ip;
    }
    // Every connection has an address. Only a test's request has none.
    let peer = request.remote_addr().as_socket_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), SocketAddr::ip);
    if trusted_proxies.is_empty() {
        return peer.to_canonical();
    }
    let forwarded = request.headers().get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    source(peer, &forwarded.collect::<Vec<_>>(), trusted_proxies)
}

fn source(peer: IpAddr, forwarded: &[&str], trusted_proxies: &[IpNet]) -> IpAddr {
    let mut source = peer.to_canonical();
    let mut hops = forwarded.iter().flat_map(|value| value.split(',')).rev();
    while trusted_proxies.iter().any(|proxies| proxies.contains(&source)) {
        // An entry that does not parse counts as absent.
        let Some(before) = hops.next().and_then(|hop| address(hop.trim())) else { break };
        source = before.to_canonical();
    }
    source
}

/// Parses an address as proxies write it, also with a port or in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn forwarded_addresses_count_only_from_trusted_proxies() {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "2001:db8::/64"].iter().map(|net| net.parse().unwrap()).collect();
        for (peer, forwarded, expected) in [
            ("192.0.2.1", &[][..], "192.0.2.1"),
            ("192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
            ("::ffff:192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["::ffff:198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["[2001:db9::1]:4711"], "2001:db9::1"),
            ("2001:db8::1", &["[2001:db9::1]"], "2001:db9::1"),
            ("10.0.0.1", &["198.51.100.7, unknown"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.3"], "10.0.0.3"),
            ("10.0.0.1", &[], "10.0.0.1"),
        ] {
            let found = source(peer.parse().unwrap(), forwarded, &trusted);
            assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {forwarded:?}");
        }
    }
}
