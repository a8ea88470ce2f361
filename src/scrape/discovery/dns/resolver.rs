//! The name servers of this machine, as `/etc/resolv.conf` names them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use crate::scrape::config::read_bounded;

/// The file with the name servers of this machine.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The most bytes of that file, inclusive.
const RESOLV_BYTES_MAX: u64 = 64 << 10;
/// The most name servers, inclusive.
const SERVERS_MAX: usize = 8;
/// The most search domains, inclusive.
const SEARCH_MAX: usize = 32;
/// The port of name servers.
const DNS_PORT: u16 = 53;

/// How names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsResolver {
    /// The name servers, the first one preferred.
    pub servers: Vec<SocketAddr>,
    /// The domains that are appended to names without a final dot.
    pub search: Vec<String>,
    /// A name with at least this number of dots is tried without a search domain first.
    pub dots_min: usize,
    /// The longest time for one answer.
    pub timeout: Duration,
    /// The number of attempts for each server and name.
    pub attempts: u32,
}

impl DnsResolver {
    /// Reads the configuration of this machine. Without one, the server is `127.0.0.1`.
    pub fn of_this_machine() -> DnsResolver {
        DnsResolver::parse(&read_bounded(Path::new(RESOLV_CONF), RESOLV_BYTES_MAX).unwrap_or_default())
    }

    /// Parses the text of a `resolv.conf`. Unknown lines and options are ignored, as in
    /// resolv.conf(5).
    pub fn parse(text: &str) -> DnsResolver {
        let mut resolver = DnsResolver {
            servers: Vec::new(),
            search: Vec::new(),
            dots_min: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        };
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    // A zone (`fe80::1%eth0`) cannot be part of an address here.
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    let is_room = resolver.servers.len() < SERVERS_MAX;
                    resolver
                        .servers
                        .extend(address.filter(|_| is_room).map(|ip| SocketAddr::from((ip, DNS_PORT))));
                }
                Some("domain") => resolver.search = words.take(1).map(str::to_owned).collect(),
                Some("search") => resolver.search = words.take(SEARCH_MAX).map(str::to_owned).collect(),
                Some("options") => words.for_each(|word| resolver.set_option(word)),
                _ => {}
            }
        }
        if resolver.servers.is_empty() {
            resolver.servers.push((Ipv4Addr::LOCALHOST, DNS_PORT).into());
        }
        resolver
    }

    fn set_option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else { return };
        let Ok(value) = value.parse::<u32>() else { return };
        match name {
            "ndots" => self.dots_min = usize::try_from(value.min(15)).unwrap_or(15),
            "timeout" => self.timeout = Duration::from_secs(u64::from(value.clamp(1, 30))),
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// Returns the names to query, in order, each with a final dot.
    pub fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let own = format!("{name}.");
        let has_dots = name.matches('.').count() >= self.dots_min;
        let searched = self.search.iter().map(|domain| format!("{name}.{}.", domain.trim_matches('.')));
        let searched = searched.filter(|name| !name.ends_with(".."));
        match has_dots {
            true => [own].into_iter().chain(searched).collect(),
            false => searched.chain([own]).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_as_resolv_conf_describes() {
        let text = "# made by x\nnameserver 10.0.0.1 ; first\nnameserver fd00::1\nnameserver bad\n\
                    domain a.example\nsearch b.example c.example.\noptions ndots:2 timeout:3 rotate attempts:9\n";
        let resolver = DnsResolver::parse(text);
        assert_eq!(resolver.servers, ["10.0.0.1:53".parse().unwrap(), "[fd00::1]:53".parse().unwrap()]);
        assert_eq!((resolver.dots_min, resolver.attempts), (2, 5));
        assert_eq!(resolver.timeout, Duration::from_secs(3));
        assert_eq!(resolver.candidates("x"), ["x.b.example.", "x.c.example.", "x."]);
        assert_eq!(resolver.candidates("x.y.z"), ["x.y.z.", "x.y.z.b.example.", "x.y.z.c.example."]);
        assert_eq!(resolver.candidates("x."), ["x."]);
        assert_eq!(DnsResolver::parse("").servers, ["127.0.0.1:53".parse().unwrap()]);
    }
}
