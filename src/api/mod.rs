//! The only room that knows HTTP: routes, callers, limits, JSON.
//!
//! Every route group has its own small `Deps`; there is no application-wide state. A group is a function
//! `routes() -> Routes<Deps>` beside its handlers.

pub mod body;
pub mod callers;
mod cookies;
mod cors;
mod csrf;
pub mod error;
pub mod host;
pub mod lanes;
pub mod limits;
pub mod orgs;
pub mod params;
pub mod prom_json;
mod request_id;
pub mod routes;
mod security_headers;
