//! The only room that knows HTTP: routes, callers, limits, JSON.
//!
//! Every route group has its own small `Deps`; there is no application-wide state. A group is a function
//! `routes() -> Routes<Deps>` beside its handlers.

pub mod callers;
pub mod error;
pub mod lanes;
pub mod orgs;
pub mod routes;
