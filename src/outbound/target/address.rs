//! The addresses that requests to targets may connect to. They are checked after the name is
//! resolved, and the connection uses the checked address, so a name server that changes its answer
//! gains nothing.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use super::error::TargetError;
use crate::model::{AddressRefusal, EgressRules};

/// The most addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;

/// The addresses that may be connected to.
#[derive(Clone, Debug)]
pub struct Egress {
    rules: Arc<EgressRules>,
    /// The addresses that this server listens on.
    own: Arc<[SocketAddr]>,
    #[cfg(test)]
    names: Arc<std::sync::Mutex<Vec<(String, IpAddr)>>>,
}

impl Egress {
    /// Returns the rule of a server that listens on `own`.
    pub fn new(rules: EgressRules, own: &[SocketAddr]) -> Egress {
        Egress {
            rules: Arc::new(rules),
            own: own.into(),
            #[cfg(test)]
            names: Arc::default(),
        }
    }

    /// Adds an answer of the name server.
    #[cfg(test)]
    pub(super) fn answer(&self, name: &str, ip: IpAddr) {
        self.names.lock().expect("no panic").push((name.to_owned(), ip));
    }

    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        #[cfg(test)]
        {
            let names = self.names.lock().expect("no panic").clone();
            let known: Vec<SocketAddr> =
                names.into_iter().filter(|(name, _)| name == host).map(|(_, ip)| (ip, port).into()).collect();
            if !known.is_empty() {
                return Ok(known);
            }
        }
        Ok(tokio::net::lookup_host((host, port)).await?.take(ADDRESSES_MAX).collect())
    }

    /// Resolves a host, and returns the addresses that may be connected to.
    ///
    /// # Errors
    /// [`TargetError::Unreachable`] if the host is unknown, [`TargetError::AddressRefused`] if none
    /// of its addresses is allowed.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, TargetError> {
        let unknown = |why: String| TargetError::Unreachable(format!("{host} has no address: {why}"));
        let found = self.lookup(host, port).await.map_err(|error| unknown(error.to_string()))?;
        let mut refused = None;
        let mut allowed = Vec::with_capacity(found.len());
        for address in found {
            match self.rules.check(host, address, self.is_own(address)) {
                Ok(()) => allowed.push(address),
                Err(why) => refused = Some((address.ip(), why)),
            }
        }
        match refused {
            Some((ip, why)) if allowed.is_empty() => {
                let is_address = host.parse::<IpAddr>().is_ok();
                let why = match why {
                    AddressRefusal::NotPublic => "is not a public address",
                    AddressRefusal::Itself => "is this server itself",
                };
                let host = if is_address { host.to_owned() } else { format!("{host} ({ip})") };
                Err(TargetError::AddressRefused { host, why })
            }
            None if allowed.is_empty() => Err(unknown("the name server returned none".to_owned())),
            _ => Ok(allowed),
        }
    }

    /// Returns whether this server listens on an address.
    fn is_own(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.own.iter().filter(|own| own.port() == address.port()).any(|own| {
            let own = own.ip().to_canonical();
            own == ip || ip.is_unspecified() || (own.is_unspecified() && is_of_this_machine(ip))
        })
    }
}

/// Returns whether an address belongs to an interface of this machine: only then can a socket be
/// bound to it.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}
