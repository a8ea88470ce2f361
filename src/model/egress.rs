//! The rule for outgoing connections: which addresses the targets of organisations may have.
//!
//! Public addresses are allowed. Loopback, private, link-local and all other addresses that are not
//! public need an entry of the operator. The server itself needs an entry with its port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The entries of `--outbound-allow`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressRules {
    networks: Vec<CidrBlock>,
    /// Hosts, each with its port if the entry names one.
    hosts: Vec<(Box<str>, Option<u16>)>,
    /// Whether loopback and private addresses are allowed without an entry.
    allows_local: bool,
}

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CidrBlock {
    address: IpAddr,
    prefix: u8,
}

impl CidrBlock {
    fn parse(text: &str) -> Option<CidrBlock> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().ok()?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(whole), |text| text.parse().ok())?;
        (prefix <= whole).then_some(CidrBlock { address, prefix })
    }

    fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.prefix);
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.prefix);
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The reason why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// The address is not public.
    #[error("is not a public address")]
    NotPublic,
    /// The address is one of this server.
    #[error("is this server")]
    Itself,
}

impl EgressRules {
    /// Parses entries: a network or address (`10.0.0.0/8`, `fd00::/8`, `127.0.0.1`), a host, or a
    /// host or address with a port (`mimir:9009`, `[::1]:9009`).
    ///
    /// # Errors
    /// Returns the first entry that is not of these forms.
    pub fn parse<'t>(entries: impl IntoIterator<Item = &'t str>) -> Result<EgressRules, String> {
        let mut rules = EgressRules::default();
        for entry in entries.into_iter().map(str::trim).filter(|entry| !entry.is_empty()) {
            if let Some(network) = CidrBlock::parse(entry) {
                rules.networks.push(network);
                continue;
            }
            let url = super::TargetUrl::parse(&format!("http://{entry}")).ok();
            let has_port = entry.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            match url {
                Some(url) if url.path().is_empty() => {
                    rules.hosts.push((url.host().into(), has_port.then(|| url.port())));
                }
                _ => return Err(entry.to_owned()),
            }
        }
        Ok(rules)
    }

    /// Returns the rules for scraping: loopback and private addresses are allowed as well.
    /// Link-local addresses and those of cloud metadata services still need an entry.
    #[must_use]
    pub fn for_scraping(self) -> EgressRules {
        EgressRules { allows_local: true, ..self }
    }

    /// Checks an address that `host` resolved to. `is_own` states that this server listens on it.
    ///
    /// # Errors
    /// [`AddressRefusal`].
    pub fn check(&self, host: &str, address: SocketAddr, is_own: bool) -> Result<(), AddressRefusal> {
        let ip = address.ip().to_canonical();
        let (port, text) = (address.port(), ip.to_string());
        let is_named = |name: &str| name.eq_ignore_ascii_case(host) || name == text;
        if self.hosts.iter().any(|(name, own)| *own == Some(port) && is_named(name)) {
            return Ok(());
        }
        if is_own {
            return Err(AddressRefusal::Itself);
        }
        let is_allowed = (is_public(ip) && !(self.allows_local && is_metadata(ip)))
            || (self.allows_local && is_local(ip))
            || self.networks.iter().any(|network| network.contains(ip))
            || self.hosts.iter().any(|(name, own)| own.is_none() && is_named(name));
        if is_allowed { Ok(()) } else { Err(AddressRefusal::NotPublic) }
    }
}

/// Returns whether an address is one at which a cloud offers the credentials of its machines.
fn is_metadata(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            // Most clouds, Alibaba, Oracle, Azure.
            let known = [[169, 254, 169, 254], [100, 100, 100, 200], [192, 0, 0, 192], [168, 63, 129, 16]];
            known.contains(&ip.octets())
        }
        // The metadata services of AWS and Google.
        IpAddr::V6(ip) => [[0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]]
            .contains(&ip.segments()),
    }
}

/// Returns whether an address is a loopback, private or shared one, and not that of a metadata
/// service. Link-local addresses are not local in this sense.
fn is_local(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_loopback() || ip.is_private() || (a == 100 && b & 0xc0 == 64)
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local(),
    };
    is_local && !is_metadata(ip)
}

/// Returns whether an address is reachable on the public internet. An IPv6 address that embeds an
/// IPv4 address is as public as that one.
pub fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let special = ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation()
        || a == 0
        || a >= 240
        // Shared addresses of providers, protocol assignments, benchmarks.
        || (a == 100 && b & 0xc0 == 64)
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && b & 0xfe == 18);
    !special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // NAT64, and the compatible form of IPv4, which includes :: and ::1.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Local NAT64, Teredo and other protocol assignments, documentation.
        [0x64, 0xff9b, 1, ..] | [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => {
            false
        }
        // Only 2000::/3 is assigned to the internet: local, link-local, site-local and multicast
        // addresses are outside.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for text in
            ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert!(is_public(ip(text)), "{text}");
        }
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "192.0.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fd00:ec2::254",
            "fc00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(ip(text)), "{text}");
        }
    }

    #[test]
    fn scraping_reaches_local_addresses_but_no_metadata_service() {
        let rules = EgressRules::parse(["169.254.7.7"]).expect("valid").for_scraping();
        let check = |ip_text: &str, is_own: bool| rules.check("x", (ip(ip_text), 80).into(), is_own).is_ok();
        for text in
            ["127.0.0.1", "10.1.2.3", "192.168.0.1", "100.64.0.1", "::1", "fd00::1", "1.1.1.1", "169.254.7.7"]
        {
            assert!(check(text, false), "{text}");
            assert!(!check(text, true), "{text} with the port of this server");
        }
        for text in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
            "169.254.1.1",
            "fe80::1",
            "0.0.0.0",
            "224.0.0.1",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(!check(text, false), "{text}");
        }
    }

    #[test]
    fn entries_allow_networks_hosts_and_ports() {
        let rules = EgressRules::parse(["10.0.0.0/8", " ::1 ", "mimir", "thanos:9090", "[fd00::1]:80"]);
        let rules = rules.expect("valid");
        let check = |host: &str, address: &str, is_own: bool| {
            rules.check(host, address.parse().expect("an address"), is_own).is_ok()
        };
        assert!(check("x", "10.2.3.4:80", false));
        assert!(check("x", "[::1]:80", false));
        assert!(check("x", "[::ffff:10.2.3.4]:80", false), "an IPv4 address in the form of IPv6");
        assert!(!check("x", "192.168.0.1:80", false));
        assert!(check("MIMIR", "192.168.0.1:80", false));
        assert!(check("thanos", "192.168.0.1:9090", false));
        assert!(!check("thanos", "192.168.0.1:9091", false), "another port");
        assert!(check("x", "[fd00::1]:80", false));
        assert!(!check("x", "[fd00::1]:81", false));
        // Only an entry with a port allows the server itself.
        assert!(!check("x", "10.2.3.4:80", true));
        assert!(!check("mimir", "1.1.1.1:80", true));
        assert!(check("thanos", "127.0.0.1:9090", true));
        for entry in ["10.0.0.0/33", "a b", "http://a", "a/b", "a:0", "*"] {
            assert!(EgressRules::parse([entry]).is_err(), "{entry}");
        }
    }
}
