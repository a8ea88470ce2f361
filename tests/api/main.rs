//! The HTTP API as its users meet it: black box over the in-process router, and over a real socket where bytes matter.

mod house;

mod accounts;
mod callers;
mod edge;
mod errors;
mod limits;
mod members;
mod oauth;
mod organisations;
mod removal;
mod security;
