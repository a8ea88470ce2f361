//! Requests that are answered by a mail (API.md C1, D5): one answer for addresses with and without an account, sent before
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
use crate::entropy::Entropy;
use crate::identity::{Email, LinkMail, SecretHash};
use crate::model::Timestamp;
use crate::outbound::{Mail, MailKind};

/// Somebody who asked for a mail.
pub(super) struct Asked {
    pub(super) email: Email,
    /// The value of `ms_ml`: binds the link to their browser.
    pub(super) browser: String,
    /// Whether the address may be mailed at all; who asks is not told.
    pub(super) admitted: bool,
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
    pub(super) fn may_mail(&self, visitor: &Visitor, email: &Email) -> ApiResult<bool> {
        let address = SecretHash::of(email.as_str()).0;
        if self.identity.knows_device(visitor.device_cookie(), email, self.clock.now()) {
            return Ok(self.limits.admits_mail_to_known(address));
        }
        let asker = visitor.client().ip;
        self.limits.charge_mail_from(asker)?;
        Ok(self.limits.admits_mail_to(address, asker))
    }

    /// Mails a link, unless the server has mailed its share of this hour.
    pub(super) fn send_link(&self, kind: MailKind, link: &LinkMail, now: Timestamp) {
        if !self.limits.admits_mail() {
            tracing::warn!(
                mail.kind = kind.as_str(),
                "a mail was not sent: 100 were asked for within an hour"
            );
            return;
        }
        let url = format!("{}{}{}", self.public_url, path(kind), link.token.expose());
        self.send(Mail { to: link.to.as_str().to_owned(), kind, url, expires_in: link.expires_in, at: now });
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
