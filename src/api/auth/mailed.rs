//! Requests that are answered by a mail (docs/specification.md C1, D5): one answer for addresses with and without an account, sent before
//! the mail is, and limits that tell nobody anything.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64URL_NOPAD;
use serde_json::json;

use super::{AuthDeps, seconds};
use crate::api::body::Json;
use crate::api::callers::Visitor;
use crate::api::error::{ApiError, ApiResult};
use crate::api::limits::{MAILS_AN_HOUR, MailClass};
use crate::entropy::Entropy;
use crate::identity::{Email, LinkMail, SecretHash};
use crate::model::Timestamp;
use crate::outbound::{Mail, MailKind};

/// Somebody who asked for a mail.
pub(super) struct Asked {
    pub(super) email: Email,
    /// The value of `ms_ml`: binds the link to their browser.
    pub(super) browser: String,
    /// What may be mailed to the address; the response does not tell.
    pub(super) admitted: Admitted,
}

/// What the limits of an address say to a request for a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// Nothing is sent.
    No,
    /// A mail is sent if the hourly limit of its class admits it.
    Stranger,
    /// The browser logged in to the account before: the account's own limit is the only one.
    KnownDevice,
}

impl Asked {
    /// 202, whatever comes of it.
    pub(super) fn accepted(&self, deps: &AuthDeps, ttl: Duration) -> Response {
        let mut response = accepted(ttl);
        let cookie = deps.cookies.magic_link(&self.browser, ttl);
        response.headers_mut().append(header::SET_COOKIE, cookie);
        response
    }
}

/// `{"status":"accepted","expires_in":600}`.
pub(super) fn accepted(ttl: Duration) -> Response {
    let body = json!({ "status": "accepted", "expires_in": seconds(ttl) });
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

/// An address in a field.
pub(super) fn address(field: &'static str, text: &str) -> ApiResult<Email> {
    Email::parse(text).map_err(|error| ApiError::invalid_field(field, "form", error.to_string()))
}

impl AuthDeps {
    /// Takes in a request for a mail: 422 for what is no address, 429 by the network of who asks.
    pub(super) fn asked(&self, visitor: &Visitor, email: &str) -> ApiResult<Asked> {
        let email = address("email", email)?;
        let admitted = self.may_mail(visitor, &email)?;
        // A browser that waits for another link already goes on using that one's binding.
        let ours = |value: &&str| {
            value.len() == 43 && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        let browser = match visitor.magic_link_cookie().filter(ours) {
            Some(browser) => browser.to_owned(),
            None => BASE64URL_NOPAD.encode(&Entropy::system().bytes::<32>()),
        };
        Ok(Asked { email, browser, admitted })
    }

    /// Charges the asker and the address. Unknown addresses count, too: the answer tells nothing, and neither does its
    /// time. A browser that logged in to the account before has a limit of its own, which strangers cannot use up.
    pub(super) fn may_mail(&self, visitor: &Visitor, email: &Email) -> ApiResult<Admitted> {
        let address = SecretHash::of(email.as_str()).0;
        if self.identity.knows_device(visitor.device_cookie(), email, self.clock.now()) {
            let admits = self.limits.admits_mail_to_known(address);
            return Ok(if admits { Admitted::KnownDevice } else { Admitted::No });
        }
        let asker = visitor.client().ip;
        self.limits.charge_mail_from(asker)?;
        let admits = self.limits.admits_mail_to(address, asker);
        Ok(if admits { Admitted::Stranger } else { Admitted::No })
    }

    /// Whether a mail leaves: a known device passes the hourly limits, which strangers can use up.
    pub(super) fn admits(&self, kind: MailKind, admitted: Admitted) -> bool {
        let admits = match admitted {
            Admitted::No => return false,
            Admitted::KnownDevice => return true,
            Admitted::Stranger => self.limits.admits_mail(class(kind)),
        };
        if !admits {
            tracing::warn!(
                mail.kind = kind.as_str(),
                "a mail was not sent: {MAILS_AN_HOUR} of its kind left within an hour"
            );
        }
        admits
    }

    /// Mails a link if the limits admit it.
    pub(super) fn send_link(&self, kind: MailKind, link: &LinkMail, admitted: Admitted, now: Timestamp) {
        if !self.admits(kind, admitted) {
            return;
        }
        let url = format!("{}{}{}", self.public_url, path(kind), link.token.expose());
        self.send(Mail { to: link.to.as_str().to_owned(), kind, url, expires_in: link.expires_in, at: now });
    }
}

/// The hourly limit that a mail is charged to.
const fn class(kind: MailKind) -> MailClass {
    match kind {
        MailKind::Signup | MailKind::SignupKnown => MailClass::Signups,
        MailKind::EmailConfirm => MailClass::NewAddresses,
        _ => MailClass::Links,
    }
}

/// Where a link leads, but for its secret. Behind a `#` no server and no log sees it; the sign-in link is one that a
/// server must read.
const fn path(kind: MailKind) -> &'static str {
    match kind {
        MailKind::PasswordReset => "/login/reset#token=",
        MailKind::Signup => "/login/signup#token=",
        MailKind::EmailConfirm => "/login/email#token=",
        _ => "/api/v1/auth/magic-link/verify?token=",
    }
}
