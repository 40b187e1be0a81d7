#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

#[test]
fn clients_never_see_an_address_in_an_error() {
    for ip in ["10.0.0.1", "::1", "fd00::5", "64:ff9b::a9fe:a9fe"] {
        let refused = Refused::Address(ip.parse().unwrap()).to_string();
        assert!(refused.contains(ip));
        assert_eq!(without_addresses(&refused), "the host's address is not allowed");
    }
    for (error, told) in [
        ("connection to 10.0.0.1:443 refused", "connection to (address) refused"),
        ("no route to [fd00::5]:443, given up", "no route to (address) given up"),
        ("proxy (10.0.0.1) failed", "proxy (address) failed"),
    ] {
        assert_eq!(without_addresses(error), told);
    }
    for error in ["the name has no address", "HTTP 503", "TLS: unknown issuer", "no answer within 0.4 s", "connection refused"] {
        assert_eq!(without_addresses(error), error);
    }
}

/// Blocks in which every address must be refused.
const REFUSED: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "169.254.169.254/32",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
    "255.255.255.255/32",
    "::/128",
    "::1/128",
    "::/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fd00:ec2::254/128",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "4000::/2",
    "8000::/1",
];

/// Neighbours of the refused blocks, in which every address must pass.
const PUBLIC: &[&str] = &[
    "1.0.0.0/8",
    "9.0.0.0/8",
    "11.0.0.0/8",
    "100.0.0.0/10",
    "100.128.0.0/9",
    "126.0.0.0/8",
    "128.0.0.0/8",
    "168.63.129.17/32",
    "168.63.129.15/32",
    "169.253.0.0/16",
    "169.255.0.0/16",
    "172.0.0.0/12",
    "172.32.0.0/11",
    "192.0.1.0/24",
    "192.0.3.0/24",
    "192.88.98.0/24",
    "192.167.0.0/16",
    "192.169.0.0/16",
    "198.16.0.0/15",
    "198.20.0.0/14",
    "198.51.99.0/24",
    "203.0.112.0/24",
    "203.0.114.0/24",
    "223.0.0.0/8",
    "2001:200::/23",
    "2001:4860::/32",
    "2001:db7::/32",
    "2001:db9::/32",
    "2003::/16",
    "2600::/12",
    "2a00::/12",
    "3ffe::/17",
];

fn strict() -> AddressFilter {
    AddressFilter::default()
}

fn address_in(net: IpNet, random: u128) -> IpAddr {
    match net {
        IpNet::V4(n) => {
            let host = !u32::from(n.netmask()) & random as u32;
            Ipv4Addr::from(u32::from(n.network()) | host).into()
        }
        IpNet::V6(n) => {
            let host = !u128::from(n.netmask()) & random;
            Ipv6Addr::from(u128::from(n.network()) | host).into()
        }
    }
}

fn is_isatap(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v) if v.segments()[5] == 0x5efe)
}

proptest! {
    #[test]
    fn whole_blocks_are_refused(random in any::<u128>()) {
        for text in REFUSED {
            let net: IpNet = text.parse().unwrap();
            for ip in [net.network(), net.broadcast(), address_in(net, random)] {
                prop_assert!(strict().check(ip).is_err(), "{} of {}", ip, text);
                if let IpAddr::V4(v4) = ip {
                    prop_assert!(strict().check(v4.to_ipv6_mapped().into()).is_err());
                }
                // An operator who allows exactly this address allows it, unless it is a NAT64 one.
                let named = AddressFilter { allowed: vec![IpNet::from(ip)] };
                let wraps = matches!(ip, IpAddr::V6(v6) if !wrapped_by_nat64(v6, 128).is_empty());
                prop_assert!(wraps || named.check(ip).is_ok(), "{} of {}", ip, text);
            }
        }
    }

    #[test]
    fn neighbours_of_refused_blocks_are_allowed(random in any::<u128>()) {
        for text in PUBLIC {
            let net: IpNet = text.parse().unwrap();
            for ip in [net.network(), net.broadcast(), address_in(net, random)] {
                prop_assert!(is_isatap(ip) || strict().check(ip).is_ok(), "{} of {}", ip, text);
            }
        }
    }

    #[test]
    fn a_mapped_address_counts_as_its_ipv4_address(bits in any::<u32>()) {
        let v4 = Ipv4Addr::from_bits(bits);
        prop_assert_eq!(
            strict().check(v4.into()),
            strict().check(v4.to_ipv6_mapped().into())
        );
    }

    #[test]
    fn every_other_embedding_of_ipv4_is_refused(bits in any::<u32>()) {
        let [a, b] = [(bits >> 16) as u16, bits as u16];
        for segments in [
            [0, 0, 0, 0, 0, 0, a, b],
            [0, 0, 0, 0, 0xffff, 0, a, b],
            [0x64, 0xff9b, 0, 0, 0, 0, a, b],
            [0x64, 0xff9b, 1, a, b, 0, 0, 0],
            [0x2002, a, b, 0, 0, 0, 0, 1],
            [0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !a, !b],
            [0x2a00, 1, 2, 3, 0, 0x5efe, a, b],
            [0x2a00, 1, 2, 3, 0x0200, 0x5efe, a, b],
            [0xfe80, 0, 0, 0, 0, 0x5efe, a, b],
        ] {
            let ip = IpAddr::from(segments);
            prop_assert!(strict().check(ip).is_err(), "{}", ip);
        }
    }

    #[test]
    fn an_allowed_translator_is_judged_by_the_embedded_address(prefix in any::<u128>(), bits in any::<u32>()) {
        let inner = Ipv4Addr::from_bits(bits);
        for whole in ["64:ff9b::/96", "64:ff9b:1::/48"] {
            let IpAddr::V6(start) = address_in(whole.parse().unwrap(), prefix >> 32 << 32) else { unreachable!() };
            let filter = AddressFilter { allowed: vec![IpNet::new(start.into(), 96).unwrap()] };
            let ip = Ipv6Addr::from_bits(start.to_bits() | u128::from(bits));
            prop_assert_eq!(filter.check(ip.into()).is_ok(), strict().check(inner.into()).is_ok(), "{}", ip);
        }
    }

    #[test]
    fn an_allowed_translator_of_any_prefix_reaches_no_private_address(random in any::<u128>(), host in any::<u32>()) {
        let filter = AddressFilter { allowed: vec!["64:ff9b:1::/48".parse().unwrap()] };
        for inner in ["10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16"] {
            let IpAddr::V4(inner) = address_in(inner.parse().unwrap(), host.into()) else { unreachable!() };
            let [p, q, r, s] = inner.octets();
            for at in [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]] {
                let IpAddr::V6(around) = address_in(filter.allowed[0], random) else { unreachable!() };
                let mut octets = around.octets();
                at.into_iter().zip([p, q, r, s]).for_each(|(place, octet)| octets[place] = octet);
                let ip = IpAddr::from(octets);
                prop_assert!(filter.check(ip).is_err(), "{} by {}", inner, ip);
            }
        }
    }

    #[test]
    fn any_text_is_refused_or_a_valid_https_url(text in "(https?:/?/?)?.{0,40}") {
        if let Ok(url) = check_url(&text) {
            prop_assert_eq!(url.scheme(), "https");
            prop_assert!(url.has_host() && url.username().is_empty());
        }
    }
}

#[test]
fn one_refused_address_refuses_the_name() {
    let good: SocketAddr = "93.184.216.34:443".parse().unwrap();
    let good6: SocketAddr = "[2606:2800:220:1::1]:443".parse().unwrap();
    let bad: SocketAddr = "10.0.0.1:443".parse().unwrap();
    assert_eq!(strict().check_all([good, good6]), Ok(vec![good, good6]));
    for answer in [vec![good, bad], vec![bad, good], vec![good6, bad, good]] {
        assert_eq!(strict().check_all(answer), Err(Refused::Address(bad.ip())));
    }
    assert_eq!(strict().check_all([]), Err(Refused::NoAddress));
}

#[test]
fn an_allowed_translator_does_not_allow_the_networks_behind_it() {
    let filter = AddressFilter { allowed: vec!["64:ff9b::/96".parse().unwrap()] };
    assert!(filter.check("64:ff9b::5db8:d822".parse().unwrap()).is_ok());
    for inner in ["64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1"] {
        assert!(filter.check(inner.parse().unwrap()).is_err());
    }
    // Allowing all of IPv6 does not allow mapped IPv4 addresses either.
    let filter = AddressFilter { allowed: vec!["::/0".parse().unwrap()] };
    assert!(filter.check("::ffff:127.0.0.1".parse().unwrap()).is_err());
}

#[test]
fn urls_are_checked_for_their_form() {
    for good in [
        "https://example.com",
        "HTTPS://Example.com:8443/hook?a=b#c",
        "https://xn--bcher-kva.example/",
        "https://bücher.example/",
        "https://localhost:9999/hook",
        "https://example.com./hook",
        "https://a_b.example/",
    ] {
        assert!(check_url(good).is_ok(), "{good}");
    }
    let labels = |count| format!("https://{}/", vec!["a".repeat(63); count].join("."));
    assert!(check_url(&labels(3)).is_ok());
    for bad in [&labels(4), &labels(1).replace("/a", "/aa"), "https://a-.example/", "https://-a.example/"] {
        assert_eq!(check_url(bad), Err(UrlRefused::Host), "{bad}");
    }
    for (bad, why) in [
        ("", UrlRefused::Invalid),
        ("example.com", UrlRefused::Invalid),
        ("https://", UrlRefused::Invalid),
        ("https://a b.example/", UrlRefused::Invalid),
        (" https://example.com", UrlRefused::Invalid),
        ("https://exa\nmple.com", UrlRefused::Invalid),
        ("https://example.com:0/", UrlRefused::Invalid),
        ("https://example.com:65536/", UrlRefused::Invalid),
        ("https://1.2.3.4.5/", UrlRefused::Invalid),
        ("https://[fe80::1%25eth0]/", UrlRefused::Invalid),
        ("http://example.com/", UrlRefused::NotHttps),
        ("ftp://example.com/", UrlRefused::NotHttps),
        ("https:example.com", UrlRefused::NotHttps),
        ("https:\\\\example.com", UrlRefused::NotHttps),
        ("javascript:alert(1)", UrlRefused::NotHttps),
        ("file:///etc/passwd", UrlRefused::NotHttps),
        ("https://user@example.com/", UrlRefused::UserInfo),
        ("https://:pw@example.com/", UrlRefused::UserInfo),
    ] {
        assert_eq!(check_url(bad), Err(why), "{bad}");
    }
    let base = "https://example.com/";
    let exact = format!("{base}{}", "é".repeat(MAX_URL_CHARACTERS - base.len()));
    assert!(check_url(&exact).is_ok());
    assert_eq!(check_url(&format!("{exact}x")), Err(UrlRefused::TooLong));
}
