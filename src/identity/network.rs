//! Networks of peers, the unit by which failures are counted.

use std::net::IpAddr;

/// A network: an IPv4 address, or the /64 of an IPv6 address, because a single host owns a whole
/// /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Network([u8; 8]);

impl Network {
    /// Returns the network of a peer.
    pub(in crate::identity) fn of(ip: IpAddr) -> Network {
        match ip.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                // IPv6 addresses in 0::/8 are not routed, so no /64 equals this.
                Network([0, 0, 0, 4, a, b, c, d])
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, h, ..] = v6.octets();
                Network([a, b, c, d, e, f, g, h])
            }
        }
    }
}
