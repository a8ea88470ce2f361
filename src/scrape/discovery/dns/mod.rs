//! Discovery by DNS: messages, the resolver's configuration, and the groups that records make.
//!
//! Only queries of one name and answers with addresses, services, mail and name servers are needed,
//! so the messages are decoded here: a resolver library brings some thirty packages, its own cache
//! and its own runtime. Source: RFC 1035, RFC 2782, RFC 3596, resolv.conf(5).

mod groups;
pub(super) mod lookup;
mod message;
mod resolver;

#[cfg(test)]
pub(super) use message::tests::response as test_response;
pub use resolver::DnsResolver;
