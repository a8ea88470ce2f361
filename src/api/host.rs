//! Checks the `Host` header and determines the client's address.
//!
//! A page of any site can let its own name resolve to 127.0.0.1 and then talk to this server as its
//! own origin (DNS rebinding). The `Host` header reveals it (docs/specification.md B4).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, Uri, Version, header, request::Parts};

use super::error::{ApiError, ApiResult, Code};

/// The TCP peer of a request, an extension set by [`edge`](super::edge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The host names that this server accepts.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Accepts these names in addition to `localhost`, `*.localhost` and IP addresses, which are
    /// always accepted.
    pub fn new(names: impl IntoIterator<Item = String>) -> AllowedHosts {
        AllowedHosts(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Returns whether requests for `host` (without a port) are accepted.
    pub fn allows(&self, host: &str) -> bool {
        const LOCAL: &str = ".localhost";
        let host = host.strip_suffix('.').unwrap_or(host);
        let end = host.len().checked_sub(LOCAL.len()).and_then(|at| host.get(at..));
        is_address(host)
            || host.eq_ignore_ascii_case("localhost")
            || end.is_some_and(|end| end.eq_ignore_ascii_case(LOCAL))
            || self.0.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    /// Checks the host of a request.
    ///
    /// # Errors
    /// 400 for a missing or repeated `Host` (RFC 9112, section 3.2), 421 `host_not_allowed` for an
    /// unknown name.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> ApiResult<()> {
        let refused = || {
            ApiError::new(
                Code::HostNotAllowed,
                "this server does not answer to that host name; PROMLET_ALLOWED_HOSTS adds names",
            )
        };
        let mut sent = headers.get_all(header::HOST).iter();
        let host = match (sent.next(), sent.next(), uri.authority()) {
            (Some(host), None, None) => host.to_str().map_err(|_| refused())?,
            // An absolute target must equal the header: either could be used as the host later.
            (Some(host), None, Some(target))
                if host.as_bytes().eq_ignore_ascii_case(target.as_str().as_bytes()) =>
            {
                target.as_str()
            }
            (None, None, Some(target)) => target.as_str(),
            _ => return Err(ApiError::new(Code::BadRequest, "a request carries exactly one Host header")),
        };
        if self.allows(without_port(host)) { Ok(()) } else { Err(refused()) }
    }
}

/// Returns whether an `Origin` has the host and the port of the request. The scheme is not
/// compared, because a proxy may have added TLS.
pub fn is_origin_of(origin: &str, uri: &Uri, headers: &HeaderMap) -> bool {
    let sent = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(|target| target.as_str()).or(sent);
    let of_page = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    host.zip(of_page).is_some_and(|(host, of_page)| host.eq_ignore_ascii_case(of_page))
}

fn is_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.parse::<std::net::Ipv4Addr>().is_ok(),
    }
}

/// Returns `host:port` without its port. `[::1]:80` keeps the brackets.
pub fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Parses `10.0.0.0/8`, `fd00::/8`, or a single address.
    pub fn parse(text: &str) -> Option<Network> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.trim().parse().ok()?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(whole), |text| text.trim().parse().ok())?;
        (prefix <= whole).then_some(Network { address, prefix })
    }

    /// Returns whether `ip` is in the network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address.to_canonical(), ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32u32.saturating_sub(u32::from(self.prefix));
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128u32.saturating_sub(u32::from(self.prefix));
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The headers that only a proxy adds. If a loopback peer sends one, the client may be anywhere.
static PROXY_HEADERS: [HeaderName; 11] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("true-client-ip"),
];

/// The proxies whose `X-Forwarded-For` is trusted.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(pub Vec<Network>);

impl TrustedProxies {
    /// Returns whether this peer is a trusted proxy.
    pub fn trusts(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(ip))
    }

    /// Returns the client's address: the TCP peer, or, behind a trusted proxy, the last address in
    /// `X-Forwarded-For` that is not a trusted proxy itself. The header of other peers is ignored.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.trusts(peer) {
            return peer;
        }
        let lines: Vec<&str> =
            headers.get_all("x-forwarded-for").iter().filter_map(|v| v.to_str().ok()).collect();
        let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
        let mut client = peer;
        for hop in hops {
            let Some(ip) = hop_address(hop.trim()) else { break };
            client = ip;
            if !self.trusts(ip) {
                break;
            }
        }
        client
    }
}

/// Parses one hop of `X-Forwarded-For`: a plain address, in brackets, or with a port, as some
/// proxies write it.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let unbracketed = || hop.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    let with_port = || hop.parse::<SocketAddr>().ok().map(|address| address.ip());
    hop.parse().ok().or_else(with_port).or_else(unbracketed)
}

/// Returns the TCP peer's address, or the unspecified address (never loopback) if it is unknown.
pub fn peer(parts: &Parts) -> IpAddr {
    parts.extensions.get::<Peer>().map_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip())
}

/// Recognises requests from this machine.
///
/// A proxy on this machine is a loopback peer as well, and some add no header. So a local request
/// must also name this machine in `Host`, and a server whose public URL is not local, which a proxy
/// may serve, treats no request as local. nginx without settings adds no header and names the
/// server's address in `Host`, but speaks HTTP/1.0, which browsers and command-line clients do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRequests {
    public_url_is_local: bool,
}

impl LocalRequests {
    /// Decides for a server whose public URL is `public_url`.
    pub fn of(public_url: &str) -> LocalRequests {
        let rest = public_url.split_once("://").map_or(public_url, |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default();
        LocalRequests { public_url_is_local: names_this_machine(without_port(authority)) }
    }

    /// Returns whether the request comes from this machine: a loopback peer, HTTP/1.1 or later, a
    /// local `Host`, no header of a proxy, and a server with a local public URL.
    pub fn includes(self, peer: IpAddr, version: Version, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        self.public_url_is_local
            && peer.to_canonical().is_loopback()
            && version >= Version::HTTP_11
            && names_this_machine(without_port(host))
            && !PROXY_HEADERS.iter().any(|name| headers.contains_key(name))
    }
}

/// Returns whether a host without a port is `localhost`, a name below it, a loopback address, or
/// the unspecified address that a server listens on.
fn names_this_machine(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&host);
    match address.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback() || ip.is_unspecified(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn rebinding_names_are_refused_and_local_ones_are_not() {
        let hosts = AllowedHosts::new(["Metrics.example.com".to_owned()]);
        for good in [
            "localhost",
            "metrics.localhost",
            "LOCALHOST",
            "localhost.",
            "127.0.0.1",
            "[::1]",
            "192.168.1.2",
            "metrics.example.com",
        ] {
            assert!(hosts.allows(good), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "",
            "::1",
            "example.com",
            "xlocalhost",
            "[evil]",
        ] {
            assert!(!hosts.allows(bad), "{bad}");
        }
    }

    #[test]
    fn ports_are_not_part_of_a_name() {
        for (authority, host) in [
            ("a:80", "a"),
            ("a", "a"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("a:b", "a:b"),
        ] {
            assert_eq!(without_port(authority), host);
        }
    }

    #[test]
    fn only_a_trusted_proxy_names_the_client() {
        let proxies = TrustedProxies(vec![Network::parse("10.0.0.0/8").expect("a network")]);
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 203.0.113.7"));
        headers.append("x-forwarded-for", HeaderValue::from_static("10.0.0.9"));
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(proxies.client(ip("10.1.1.1"), &headers), ip("203.0.113.7"));
        assert_eq!(
            proxies.client(ip("192.0.2.1"), &headers),
            ip("192.0.2.1"),
            "a stranger's header is ignored"
        );
        assert_eq!(TrustedProxies::default().client(ip("127.0.0.1"), &headers), ip("127.0.0.1"));
    }

    #[test]
    fn hops_with_ports_and_brackets_name_their_client() {
        let proxies = TrustedProxies(vec![Network::parse("10.0.0.0/8").expect("a network")]);
        let client = |hops: &'static str| {
            let mut headers = HeaderMap::new();
            headers.append("x-forwarded-for", HeaderValue::from_static(hops));
            proxies.client(IpAddr::from([10, 1, 1, 1]), &headers).to_string()
        };
        for (hops, expected) in [
            ("203.0.113.7:61234", "203.0.113.7"),
            ("6.6.6.6:1, 203.0.113.7:2, 10.0.0.9:3", "203.0.113.7"),
            ("[2001:db8::7]:443", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("2001:db8::7", "2001:db8::7"),
            // Text that is not an address ends the search, even if an address precedes it.
            ("203.0.113.7, unknown", "10.1.1.1"),
            ("203.0.113.7, 203.0.113.8:", "10.1.1.1"),
            ("203.0.113.7, 203.0.113.8:70000", "10.1.1.1"),
            ("203.0.113.7, [203.0.113.8]:1", "10.1.1.1"),
        ] {
            assert_eq!(client(hops), expected, "{hops}");
        }
    }

    #[test]
    fn a_request_is_local_only_with_a_loopback_peer_a_local_host_no_proxy_and_a_local_public_url() {
        let local = |url: &str, peer: &str, host: &'static str, proxied: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            if proxied {
                headers.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.7"));
            }
            LocalRequests::of(url).includes(peer.parse().expect("an address"), Version::HTTP_11, &headers)
        };
        let here = "http://127.0.0.1:8095";
        for host in ["127.0.0.1:8095", "localhost:8095", "metrics.localhost", "[::1]:8095", "LOCALHOST."] {
            assert!(local(here, "127.0.0.1", host, false), "{host}");
        }
        assert!(local("http://0.0.0.0:8095", "::ffff:127.0.0.1", "localhost", false));
        assert!(local("http://metrics.localhost:8095", "::1", "localhost", false));
        for host in ["metrics.example.com", "192.168.1.5:8095", "localhost.example.com", "xlocalhost", ""] {
            assert!(!local(here, "127.0.0.1", host, false), "{host}");
        }
        assert!(!local(here, "192.168.1.7", "localhost", false), "another machine");
        assert!(!local(here, "127.0.0.1", "localhost", true), "a proxy");
        for url in ["https://metrics.example.com", "http://192.168.1.5:8095", "https://[2001:db8::1]/x"] {
            assert!(!local(url, "127.0.0.1", "localhost", false), "{url}: a proxy may rewrite Host");
        }
    }

    #[test]
    fn a_network_contains_its_addresses() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("::1", "::1", true),
            ("fd00::/8", "fe00::1", false),
            ("127.0.0.1/32", "::ffff:127.0.0.1", true),
        ];
        for (network, ip, inside) in cases {
            let network = Network::parse(network).expect("a network");
            assert_eq!(network.contains(ip.parse().expect("an address")), inside, "{ip}");
        }
        assert_eq!(Network::parse("10.0.0.0/33"), None);
        assert_eq!(Network::parse("x/8"), None);
    }
}
