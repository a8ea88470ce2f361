//! Rows of the route table: a handler and its documentation stand in one line, and neither comes without the other.
//!
//! A route group is `Routes<Deps>` with a `Deps` of its own; [`Routes::with`] fills it in. The OpenAPI document, and the
//! tests that walk every route, are made from the rows.

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, on};

use super::guard::{concerns, guard};
use crate::identity::{Endpoint, Role};

/// How long ago a session's owner must have proved who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Login {
    /// As long as the session lives.
    Any,
    /// 15 minutes at most; 403 `reauth_required` otherwise.
    Fresh,
}

/// Who may call a route: every row of the table says so, and [`guard`] holds what concerns sessions before the handler is
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

/// A group of routes.
#[derive(Debug)]
pub struct Routes<S = ()> {
    router: Router<S>,
    rows: Vec<RouteDoc>,
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Routes<S> {
        Routes { router: Router::new(), rows: Vec::new() }
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// No rows.
    pub fn new() -> Routes<S> {
        Routes::default()
    }

    /// Adds `GET path`; `HEAD` comes with it.
    #[must_use]
    pub fn get<H: Handler<T, S>, T: 'static>(
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
    pub fn post<H: Handler<T, S>, T: 'static>(
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
    pub fn patch<H: Handler<T, S>, T: 'static>(
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
    pub fn delete<H: Handler<T, S>, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.row("DELETE", path, auth, summary, handler)
    }

    fn row<H: Handler<T, S>, T: 'static>(
        mut self,
        method: &'static str,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        let filter = match method {
            "POST" => MethodFilter::POST,
            "PATCH" => MethodFilter::PATCH,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        let handler = on(filter, handler);
        let guarded = match concerns(auth) {
            true => handler.route_layer(from_fn_with_state(auth, guard)),
            false => handler,
        };
        self.router = self.router.route(path, guarded);
        self.rows.push(RouteDoc { method, path: path.to_owned(), auth, summary });
        self
    }

    /// Fills in what the handlers need.
    pub fn with(self, deps: S) -> Routes {
        Routes { router: self.router.with_state(deps), rows: self.rows }
    }

    /// Adds all rows of `other`.
    #[must_use]
    pub fn merge(mut self, other: Routes<S>) -> Routes<S> {
        self.router = self.router.merge(other.router);
        self.rows.extend(other.rows);
        self
    }

    /// Puts all rows below `prefix`.
    #[must_use]
    pub fn below(self, prefix: &str) -> Routes<S> {
        let rows = self
            .rows
            .into_iter()
            .map(|row| RouteDoc { path: format!("{prefix}{}", row.path), ..row })
            .collect();
        Routes { router: Router::new().nest(prefix, self.router), rows }
    }

    /// The rows, in the order they were added.
    pub fn rows(&self) -> &[RouteDoc] {
        &self.rows
    }

    /// The router without its rows.
    pub fn into_router(self) -> Router<S> {
        self.router
    }
}
