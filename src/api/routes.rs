//! Rows of the route table: a handler and its documentation stand in one line, and neither comes without the other.
//!
//! A route group is `Routes<Deps>` with a `Deps` of its own; [`Routes::with`] fills it in. The OpenAPI document, and the
//! tests that walk every route, are made from the rows.

use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;

use super::dispatch::{Answering, Dispatch, Handle};
use super::guard::{concerns, guarded};
use crate::identity::{Endpoint, Role};

/// How long ago a session's owner must have proved who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Login {
    /// As long as the session lives.
    Any,
    /// 15 minutes at most; 403 `reauth_required` otherwise.
    Fresh,
}

/// Who may call a route: every row of the table says so, and [`guarded`] holds what concerns sessions before the handler is
/// reached or a body is read. What each kind of caller gets is a table, too: [`Auth::outcome`](super::access).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Auth {
    /// Anyone.
    Public,
    /// A session, of whoever ([`Cabinet`](super::callers::Cabinet)).
    Account(Login),
    /// A session of a member of the organisation `{slug}`, with at least this role.
    Member(Role, Login),
    /// A session of the member `{user_id}`, or of one with at least this role.
    OneselfOr(Role),
    /// A session of an instance administrator.
    InstanceAdmin(Login),
    /// A session of an instance administrator, or of anybody where the operator lets all make organisations.
    Founder,
    /// A session of a viewer, or an embed token that grants this endpoint ([`Reader`](super::callers::Reader)).
    Reader(Endpoint),
    /// Those, or an API key with the scope `read` ([`MountReader`](super::callers::MountReader)); any token, where it names
    /// no endpoint.
    MountReader(Option<Endpoint>),
    /// A session of an editor, or an API key with the scope `ingest` ([`Machine`](super::callers::Machine)).
    Machine,
    /// A session of an editor, or an API key with the scope `embed` ([`Minter`](super::callers::Minter)).
    Minter,
    /// A loopback peer without proxy headers, or the metrics token.
    Operator,
}

/// One row of the route table, as the OpenAPI document and the tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteDoc {
    /// `GET`, `POST`, `PATCH` or `DELETE`.
    pub method: &'static str,
    /// The whole path with `{parameters}`: `/api/v1/orgs/{slug}/metrics`.
    pub path: String,
    /// Who may call it.
    pub auth: Auth,
    /// One sentence without a full stop.
    pub summary: &'static str,
}

/// A handler that still needs what its group works with.
type Unbound<S> = Box<dyn FnOnce(S) -> Handle + Send>;

/// A group of routes.
pub struct Routes<S = ()> {
    rows: Vec<RouteDoc>,
    /// Of each row.
    handlers: Vec<Unbound<S>>,
}

impl<S> std::fmt::Debug for Routes<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.rows).finish()
    }
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Routes<S> {
        Routes { rows: Vec::new(), handlers: Vec::new() }
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// No rows.
    pub fn new() -> Routes<S> {
        Routes::default()
    }

    /// Adds `GET path`; `HEAD` comes with it.
    #[must_use]
    pub fn get<H: Handler<T, S, Future = Answering> + Sync, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.row("GET", path, auth, summary, handler)
    }

    /// Adds `POST path`.
    #[must_use]
    pub fn post<H: Handler<T, S, Future = Answering> + Sync, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.row("POST", path, auth, summary, handler)
    }

    /// Adds `PATCH path`.
    #[must_use]
    pub fn patch<H: Handler<T, S, Future = Answering> + Sync, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.row("PATCH", path, auth, summary, handler)
    }

    /// Adds `DELETE path`.
    #[must_use]
    pub fn delete<H: Handler<T, S, Future = Answering> + Sync, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.row("DELETE", path, auth, summary, handler)
    }

    fn row<H: Handler<T, S, Future = Answering> + Sync, T: 'static>(
        mut self,
        method: &'static str,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        let unbound = move |deps: S| -> Handle {
            let handle: Handle =
                Arc::new(move |request: Request| handler.clone().call(request, deps.clone()));
            if concerns(auth) { guarded(auth, handle) } else { handle }
        };
        self.handlers.push(Box::new(unbound));
        self.rows.push(RouteDoc { method, path: path.to_owned(), auth, summary });
        self
    }

    /// Fills in what the handlers need.
    pub fn with(self, deps: S) -> Routes {
        let bound = self.handlers.into_iter().map(|unbound| -> Unbound<()> {
            let handle = unbound(deps.clone());
            Box::new(move |()| handle)
        });
        Routes { rows: self.rows, handlers: bound.collect() }
    }

    /// Adds all rows of `other`.
    #[must_use]
    pub fn merge(mut self, other: Routes<S>) -> Routes<S> {
        self.rows.extend(other.rows);
        self.handlers.extend(other.handlers);
        self
    }

    /// Puts all rows below `prefix`.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Routes<S> {
        for row in &mut self.rows {
            row.path.insert_str(0, prefix);
        }
        self
    }

    /// The rows, in the order they were added.
    pub fn rows(&self) -> &[RouteDoc] {
        &self.rows
    }
}

impl Routes {
    /// The table by path.
    pub(super) fn into_dispatch(self) -> Dispatch {
        let mut dispatch = Dispatch::default();
        for (row, handler) in self.rows.into_iter().zip(self.handlers) {
            let method = match row.method {
                "POST" => Method::POST,
                "PATCH" => Method::PATCH,
                "DELETE" => Method::DELETE,
                _ => Method::GET,
            };
            dispatch.add(&row.path, &method, handler(()));
        }
        dispatch
    }
}
