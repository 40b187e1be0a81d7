//! SSRF filter: a webhook may be sent to public unicast addresses only, unless an operator has allowed a network.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use rustls::pki_types::DnsName;
use url::{Host, Url};

/// Maximum length of a webhook's URL, in characters.
pub const MAX_URL_CHARACTERS: usize = 2_048;

/// Reason that an address, or a name with all its addresses, is not dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The address is not public, and no allowed network contains it.
    #[error("address {0} is not allowed")]
    Address(IpAddr),
    /// The name exists but has no address.
    #[error("the name has no address")]
    NoAddress,
}

/// Returns an attempt's error as clients see it, without any address. Clients must not learn what a name resolves to inside
/// the operator's network. Addresses are removed whichever version of the program recorded the error.
pub fn without_addresses(error: &str) -> Cow<'_, str> {
    let is_address = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != ':');
        let port = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && !"[]:".contains(c));
        bare.parse::<IpAddr>().is_ok() || bare.parse::<SocketAddr>().is_ok() || port.parse::<SocketAddr>().is_ok()
    };
    if !error.split_whitespace().any(is_address) {
        return error.into();
    }
    match error.starts_with("address ") && error.ends_with(" is not allowed") {
        true => "the host's address is not allowed".into(),
        false => {
            error.split(' ').map(|word| if is_address(word) { "(address)" } else { word }).collect::<Vec<_>>().join(" ").into()
        }
    }
}

/// Reason that a URL cannot be the target of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlRefused {
    /// More than 2,048 characters.
    #[error("the URL is longer than 2048 characters")]
    TooLong,
    /// Not a URL with a host, or a URL with white space or control characters.
    #[error("the URL is not valid")]
    Invalid,
    /// A name that no certificate can contain, such as one with a label of more than 63 characters.
    #[error("the URL's host is not a valid name")]
    Host,
    /// A scheme other than `https`.
    #[error("the URL must begin with https://")]
    NotHttps,
    /// A user name or a password.
    #[error("the URL must not contain a user name or a password")]
    UserInfo,
}

/// Checks the form of a webhook's URL, at registration and before each send. [`AddressFilter`] checks the addresses of its
/// host when the sender dials.
pub fn check_url(text: &str) -> Result<Url, UrlRefused> {
    if text.chars().take(MAX_URL_CHARACTERS + 1).count() > MAX_URL_CHARACTERS {
        return Err(UrlRefused::TooLong);
    }
    // The parser would drop tabs and line ends, but the stored URL must be the one that is used.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(UrlRefused::Invalid);
    }
    let url = Url::parse(text).map_err(|_| UrlRefused::Invalid)?;
    // The parser repairs "https:host" and "https:\\host"; clients must not rely on that.
    if url.scheme() != "https" || !text.get(..8).is_some_and(|s| s.eq_ignore_ascii_case("https://")) {
        return Err(UrlRefused::NotHttps);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlRefused::UserInfo);
    }
    if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
        return Err(UrlRefused::Invalid);
    }
    if let Some(Host::Domain(name)) = url.host()
        && DnsName::try_from(name).is_err()
    {
        return Err(UrlRefused::Host);
    }
    Ok(url)
}

/// SSRF filter: decides which addresses may be dialled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressFilter {
    /// Networks that the operator has allowed, the only exception.
    pub allowed: Vec<IpNet>,
}

impl AddressFilter {
    /// Checks one address. An IPv4-mapped address counts as its IPv4 address. For a NAT64 address in an allowed network,
    /// every IPv4 address that it may embed must pass as well.
    pub fn check(&self, ip: IpAddr) -> Result<(), Refused> {
        let ip = ip.to_canonical();
        let named = self.allowed.iter().filter(|net| net.contains(&ip)).map(IpNet::prefix_len).max();
        let fine = match (named, ip) {
            // Allowing a NAT64 translator does not allow every network behind it.
            (Some(named), IpAddr::V6(v6)) => wrapped_by_nat64(v6, named).iter().all(|inner| self.check((*inner).into()).is_ok()),
            (Some(_), IpAddr::V4(_)) => true,
            (None, IpAddr::V4(v4)) => is_public_v4(v4),
            (None, IpAddr::V6(v6)) => is_public_v6(v6),
        };
        if fine { Ok(()) } else { Err(Refused::Address(ip)) }
    }

    /// Checks all addresses of a name. One refused address refuses the name; otherwise the order of the addresses, or luck,
    /// would decide which one is dialled.
    pub fn check_all(&self, addresses: impl IntoIterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
        let addresses: Vec<SocketAddr> = addresses.into_iter().collect();
        if addresses.is_empty() {
            return Err(Refused::NoAddress);
        }
        for address in &addresses {
            self.check(address.ip())?;
        }
        Ok(addresses)
    }
}

/// IPv4 blocks that are not public unicast, as network and prefix length.
const REFUSED_V4: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),        // this network, unspecified
    ([10, 0, 0, 0], 8),       // private
    ([100, 64, 0, 0], 10),    // carrier NAT; 100.100.100.200 is cloud metadata
    ([127, 0, 0, 0], 8),      // loopback
    ([168, 63, 129, 16], 32), // Azure's wire server, in a public block
    ([169, 254, 0, 0], 16),   // link-local; 169.254.169.254 is cloud metadata
    ([172, 16, 0, 0], 12),    // private
    ([192, 0, 0, 0], 24),     // protocol assignments; 192.0.0.192 is cloud metadata
    ([192, 0, 2, 0], 24),     // documentation
    ([192, 88, 99, 0], 24),   // 6to4 relays
    ([192, 168, 0, 0], 16),   // private
    ([198, 18, 0, 0], 15),    // benchmarking
    ([198, 51, 100, 0], 24),  // documentation
    ([203, 0, 113, 0], 24),   // documentation
    ([224, 0, 0, 0], 4),      // multicast
    ([240, 0, 0, 0], 4),      // reserved, broadcast
];

/// IPv6 blocks within global unicast (2000::/3) that are not public destinations.
const REFUSED_V6: [([u16; 8], u32); 4] = [
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),     // Teredo, ORCHID, benchmarking, other protocols
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), // documentation
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),     // 6to4, which embeds any IPv4 address
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),     // documentation
];

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !REFUSED_V4.iter().any(|&(network, length)| {
        let network = Ipv4Addr::from(network).to_bits();
        (ip.to_bits() ^ network) >> (32 - length) == 0
    })
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    // Only 2000::/3 is assigned as global unicast. Everything else is refused: loopback, mapped and compatible forms, NAT64,
    // discard, unique-local (fd00:ec2::254 is cloud metadata), link-local, site-local, multicast.
    let segments = ip.segments();
    if segments[0] >> 13 != 1 {
        return false;
    }
    // ISATAP: the interface identifier embeds an IPv4 address behind a tunnel.
    if segments[4] & !0x0200 == 0 && segments[5] == 0x5efe {
        return false;
    }
    !REFUSED_V6.iter().any(|&(network, length)| {
        let network = Ipv6Addr::from(network).to_bits();
        (ip.to_bits() ^ network) >> (128 - length) == 0
    })
}

/// Returns the IPv4 addresses that a NAT64 address may embed (RFC 6052).
///
/// An address of the well-known prefix 64:ff9b::/96 embeds one. Within 64:ff9b:1::/48 the position depends on the
/// translator's prefix, which is at least as long as the allowed network (`named`, in bits). So an operator has to allow a
/// /96 there: for a shorter prefix, hardly any address embeds public addresses only.
fn wrapped_by_nat64(ip: Ipv6Addr, named: u8) -> Vec<Ipv4Addr> {
    // RFC 6052 reserves the ninth octet: it is never part of the IPv4 address.
    let [_, _, _, _, _, _, a, b, _, c, d, e, f, g, h, i] = ip.octets();
    let by_prefix = [(48, [a, b, c, d]), (56, [b, c, d, e]), (64, [c, d, e, f]), (96, [f, g, h, i])];
    let shortest = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => 96,
        [0x64, 0xff9b, 1, ..] => named.min(96),
        _ => return vec![],
    };
    by_prefix.into_iter().filter(|(length, _)| *length >= shortest).map(|(_, octets)| octets.into()).collect()
}

#[cfg(test)]
mod tests;
