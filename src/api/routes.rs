//! The rows of the route table: each row pairs a handler with its documentation.
//!
//! A route group is `Routes<Deps>` with its own `Deps`, which [`Routes::with`] supplies. The
//! OpenAPI document, and the tests that visit every route, are generated from the rows.

use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;

use super::guard::{concerns, guarded};
use super::router::{ResponseFuture, RouteHandler, RouteTree};
use crate::identity::{Endpoint, Role};

/// The required age of the owner's last proof of identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Login {
    /// Any live session.
    Any,
    /// At most 15 minutes old; 403 `reauth_required` otherwise.
    Fresh,
}

/// The callers that a route admits. Only its row states them: [`guarded`] enforces the part that
/// concerns sessions before the handler runs or a body is read, and the extractors of the other
/// callers read the endpoint from the row. [`Auth::outcome`](super::access) is the table of
/// outcomes for each kind of caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Auth {
    /// Anyone.
    Public,
    /// A session of any account ([`SessionCaller`](super::callers::SessionCaller)).
    Account(Login),
    /// A session of a member of the organisation `{slug}`, with at least this role
    /// ([`MemberCaller`](super::callers::MemberCaller)).
    Member(Role, Login),
    /// A session of the member `{user_id}`, or of one with at least this role
    /// ([`MemberCaller`](super::callers::MemberCaller)).
    OneselfOr(Role),
    /// A session of an instance administrator.
    InstanceAdmin(Login),
    /// A session of an instance administrator, or of any account where the operator lets everyone
    /// create organisations.
    Founder,
    /// A session of an instance administrator, or of an administrator of the organisation `{slug}`
    /// where the operator allows these to configure scraping.
    ScrapeAdmin,
    /// A session of a viewer, or an embed token that grants this endpoint
    /// ([`QueryCaller`](super::callers::QueryCaller)).
    QueryCaller(Endpoint),
    /// As `QueryCaller`, but the token may also be the parameter `token`: requests of images have
    /// no headers of their own. No other route reads a credential from the URL.
    PictureCaller(Endpoint),
    /// As `QueryCaller`, or an API key with the scope `read`
    /// ([`PrometheusCaller`](super::callers::PrometheusCaller)). `None` admits every token.
    PrometheusCaller(Option<Endpoint>),
    /// A session of an editor, or an API key with the scope `ingest`
    /// ([`IngestCaller`](super::callers::IngestCaller)).
    IngestCaller,
    /// A session of an editor, or an API key with the scope `alerting`
    /// ([`AlertingCaller`](super::callers::AlertingCaller)).
    AlertingCaller,
    /// A session of an editor, or an API key with the scope `embed`
    /// ([`MintCaller`](super::callers::MintCaller)).
    MintCaller,
    /// A loopback peer without proxy headers, or the metrics token.
    Operator,
}

/// One row of the route table, as the OpenAPI document and the tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteDoc {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: &'static str,
    /// The whole path with `{parameters}`: `/api/v1/orgs/{slug}/metrics`.
    pub path: String,
    /// The callers that it admits.
    pub auth: Auth,
    /// One sentence without a full stop.
    pub summary: &'static str,
}

/// A handler that still needs the dependencies of its group.
type Unbound<S> = Box<dyn FnOnce(S) -> RouteHandler + Send>;

/// A group of routes.
pub struct Routes<S = ()> {
    rows: Vec<RouteDoc>,
    /// One handler for each row.
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
    /// Returns a group without rows.
    pub fn new() -> Routes<S> {
        Routes::default()
    }

    /// Adds `GET path`, which also serves `HEAD`.
    #[must_use]
    pub fn get<H: Handler<T, S, Future = ResponseFuture> + Sync, T: 'static>(
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
    pub fn post<H: Handler<T, S, Future = ResponseFuture> + Sync, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.row("POST", path, auth, summary, handler)
    }

    /// Adds `GET path` and `POST path` with one handler, whose parameters are those of the URL and
    /// of the form.
    #[must_use]
    pub fn get_and_form<H: Handler<T, S, Future = ResponseFuture> + Sync, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.get(path, auth, summary, handler.clone()).post(path, auth, summary, handler)
    }

    /// Adds `PUT path`.
    #[must_use]
    pub fn put<H: Handler<T, S, Future = ResponseFuture> + Sync, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.row("PUT", path, auth, summary, handler)
    }

    /// Adds `PATCH path`.
    #[must_use]
    pub fn patch<H: Handler<T, S, Future = ResponseFuture> + Sync, T: 'static>(
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
    pub fn delete<H: Handler<T, S, Future = ResponseFuture> + Sync, T: 'static>(
        self,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        self.row("DELETE", path, auth, summary, handler)
    }

    fn row<H: Handler<T, S, Future = ResponseFuture> + Sync, T: 'static>(
        mut self,
        method: &'static str,
        path: &'static str,
        auth: Auth,
        summary: &'static str,
        handler: H,
    ) -> Routes<S> {
        let unbound = move |deps: S| -> RouteHandler {
            let handle: RouteHandler =
                Arc::new(move |request: Request| handler.clone().call(request, deps.clone()));
            if concerns(auth) { guarded(auth, handle) } else { handle }
        };
        self.handlers.push(Box::new(unbound));
        self.rows.push(RouteDoc { method, path: path.to_owned(), auth, summary });
        self
    }

    /// Supplies the dependencies of the handlers.
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

    /// Prefixes the paths of all rows with `prefix`.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Routes<S> {
        for row in &mut self.rows {
            row.path.insert_str(0, prefix);
        }
        self
    }

    /// Returns the rows in the order in which they were added.
    pub fn rows(&self) -> &[RouteDoc] {
        &self.rows
    }
}

impl Routes {
    /// Builds the tree of paths for the router.
    pub(super) fn into_route_tree(self) -> RouteTree {
        let mut dispatch = RouteTree::default();
        for (row, handler) in self.rows.into_iter().zip(self.handlers) {
            let method = match row.method {
                "POST" => Method::POST,
                "PUT" => Method::PUT,
                "PATCH" => Method::PATCH,
                "DELETE" => Method::DELETE,
                _ => Method::GET,
            };
            dispatch.add(&row.path, method, row.auth, handler(()));
        }
        dispatch
    }
}
