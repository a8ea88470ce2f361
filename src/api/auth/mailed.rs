//! Requests whose result is sent by mail (docs/specification.md C1, D5).
//!
//! The response is the same for addresses with and without an account and is sent before the mail.
//! The limits reveal nothing either.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64URL_NOPAD;
use serde_json::json;

use super::{AuthDeps, seconds};
use crate::api::body::Json;
use crate::api::callers::AnyCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::limits::{MAILS_AN_HOUR, MailClass};
use crate::entropy::Entropy;
use crate::identity::{Email, LinkMail, SecretHash};
use crate::model::Timestamp;
use crate::outbound::{Mail, MailKind};

/// A request for a mail.
pub(super) struct MailRequest {
    pub(super) email: Email,
    /// The value of `ms_ml`, which binds the link to the browser.
    pub(super) browser: String,
    /// The decision whether a mail may go to the address. The response does not reveal it.
    pub(super) admitted: MailAdmission,
}

/// The decision of an address's limits on a request for a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MailAdmission {
    /// No mail is sent.
    No,
    /// A mail is sent if the hourly limit of its class admits it.
    UnknownDevice,
    /// The browser has logged in to the account before. Only the account's own limit applies.
    KnownDevice,
}

impl MailRequest {
    /// Returns 202 for every result, with the cookie `ms_ml`.
    pub(super) fn accepted(&self, deps: &AuthDeps, ttl: Duration) -> Response {
        let mut response = accepted(ttl);
        let cookie = deps.cookies.magic_link(&self.browser, ttl);
        response.headers_mut().append(header::SET_COOKIE, cookie);
        response
    }
}

/// Returns `{"status":"accepted","expires_in":600}`.
pub(super) fn accepted(ttl: Duration) -> Response {
    let body = json!({ "status": "accepted", "expires_in": seconds(ttl) });
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

/// Parses an address in a field.
pub(super) fn address(field: &'static str, text: &str) -> ApiResult<Email> {
    Email::parse(text).map_err(|error| ApiError::invalid_field(field, "form", error.to_string()))
}

impl AuthDeps {
    /// Checks a request for a mail. Returns 422 for an invalid address and 429 at the limit of the
    /// client's network.
    pub(super) fn mail_request(&self, caller: &AnyCaller, email: &str) -> ApiResult<MailRequest> {
        let email = address("email", email)?;
        let admitted = self.may_mail(caller, &email)?;
        // A browser that waits for another link keeps its binding.
        let is_binding = |value: &&str| {
            value.len() == 43 && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        let browser = match caller.magic_link_cookie().filter(is_binding) {
            Some(browser) => browser.to_owned(),
            None => BASE64URL_NOPAD.encode(&Entropy::system().bytes::<32>()),
        };
        Ok(MailRequest { email, browser, admitted })
    }

    /// Charges the client and the address. Unknown addresses are charged as well, so that neither
    /// the response nor its time reveals whether there is an account. A browser that has logged in
    /// to the account before has its own limit, which other clients cannot use up.
    pub(super) fn may_mail(&self, caller: &AnyCaller, email: &Email) -> ApiResult<MailAdmission> {
        let address = SecretHash::of(email.as_str()).0;
        if self.identity.knows_device(caller.device_cookie(), email, self.clock.now()) {
            let admits = self.limits.admits_mail_to_known(address);
            return Ok(if admits { MailAdmission::KnownDevice } else { MailAdmission::No });
        }
        let client_ip = caller.client().ip;
        self.limits.charge_mail_from(client_ip)?;
        let admits = self.limits.admits_mail_to(address, client_ip);
        Ok(if admits { MailAdmission::UnknownDevice } else { MailAdmission::No })
    }

    /// Returns whether a mail is sent. A known device is exempt from the hourly limits, which other
    /// clients can use up.
    pub(super) fn admits(&self, kind: MailKind, admitted: MailAdmission) -> bool {
        let admits = match admitted {
            MailAdmission::No => return false,
            MailAdmission::KnownDevice => return true,
            MailAdmission::UnknownDevice => self.limits.admits_mail(class(kind)),
        };
        if !admits {
            tracing::warn!(
                mail.kind = kind.as_str(),
                "a mail was not sent: {MAILS_AN_HOUR} of its kind were sent within an hour"
            );
        }
        admits
    }

    /// Mails a link if the limits allow the mail.
    pub(super) fn send_link(&self, kind: MailKind, link: &LinkMail, admitted: MailAdmission, now: Timestamp) {
        if !self.admits(kind, admitted) {
            return;
        }
        let url = format!("{}{}{}", self.public_url, path(kind), link.token.expose());
        self.send(Mail { to: link.to.as_str().to_owned(), kind, url, expires_in: link.expires_in, at: now });
    }
}

/// Returns the class whose hourly limit a mail is charged to.
const fn class(kind: MailKind) -> MailClass {
    match kind {
        MailKind::Signup | MailKind::SignupKnown => MailClass::Signups,
        MailKind::EmailConfirm => MailClass::NewAddresses,
        _ => MailClass::Links,
    }
}

/// Returns the path of a link without its secret. Behind a `#` no server and no log sees the
/// secret; only the sign-in link must be read by the server.
const fn path(kind: MailKind) -> &'static str {
    match kind {
        MailKind::PasswordReset => "/login/reset#token=",
        MailKind::Signup => "/login/signup#token=",
        MailKind::EmailConfirm => "/login/email#token=",
        _ => "/api/v1/auth/magic-link/verify?token=",
    }
}
