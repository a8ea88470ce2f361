//! Mail by SMTP.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{Message, SmtpTransport, Transport};
use url::Url;

use super::schedule::SendOutcome;
use super::{Mail, PlainMail};
use crate::model::Timestamp;

/// How long the mail server may take to respond before the attempt counts as failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A mail server and the sender's address.
pub struct SmtpMailer {
    transport: SmtpTransport,
    from: Mailbox,
    sends_readable: bool,
}

/// The reason why SMTP cannot be used or a mail was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SmtpError {
    /// `PROMLET_SMTP_URL` is invalid.
    #[error("the mail server's URL must be smtps://user:password@host:port or smtp://host:port?tls=required")]
    Url(#[source] lettre::transport::smtp::Error),
    /// `PROMLET_SMTP_CA_FILE` cannot be used.
    #[error("cannot read certificates in PEM from {path}: {why}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// `PROMLET_MAIL_FROM`, or the address of a mail, is invalid.
    #[error("not a mail address")]
    Address(#[source] lettre::address::AddressError),
    /// The message cannot be built.
    #[error("cannot build the mail")]
    Message(#[source] lettre::error::Error),
    /// The server did not accept the mail.
    #[error("the mail server did not accept the mail")]
    Refused(#[source] lettre::transport::smtp::Error),
}

/// Reply codes that concern the server or our login, not one mail: it is busy, is shutting down, or
/// does not accept our credentials.
const SERVER_FAILURE_CODES: [u16; 6] = [421, 454, 530, 534, 535, 538];

impl SmtpError {
    /// Classifies the failure for this mail and the others.
    pub(super) fn outcome(&self) -> SendOutcome {
        match self {
            SmtpError::Address(_) | SmtpError::Message(_) => SendOutcome::Never,
            SmtpError::Url(_) | SmtpError::Certificates { .. } => SendOutcome::Unreachable,
            SmtpError::Refused(error) => match error.status().map(u16::from) {
                Some(code) if SERVER_FAILURE_CODES.contains(&code) => SendOutcome::Unreachable,
                Some(500..) => SendOutcome::Never,
                Some(_) => SendOutcome::Later,
                None => SendOutcome::Unreachable,
            },
        }
    }
}

impl SmtpMailer {
    /// Parses the URL and the sender, and reads the certificates to trust in addition to the public
    /// ones. Does not connect.
    ///
    /// # Errors
    /// [`SmtpError::Url`], [`SmtpError::Address`] or [`SmtpError::Certificates`].
    pub fn new(url: &str, from: &str, ca_file: Option<&Path>) -> Result<SmtpMailer, SmtpError> {
        let mut builder = SmtpTransport::from_url(url).map_err(SmtpError::Url)?.timeout(Some(TIMEOUT));
        if let Some(path) = ca_file {
            builder = builder.tls(tls(url, path)?);
        }
        let sends_readable = Url::parse(url).is_ok_and(|url| sends_readable(&url));
        let from = from.parse().map_err(SmtpError::Address)?;
        Ok(SmtpMailer { transport: builder.build(), from, sends_readable })
    }

    /// Returns whether mail may leave this machine unencrypted: without `tls=`, or with a mode that
    /// an attacker can turn off.
    pub const fn sends_readable(&self) -> bool {
        self.sends_readable
    }

    /// Connects, and authenticates if the URL has credentials; sends no mail. Blocks.
    ///
    /// # Errors
    /// [`SmtpError::Refused`], if the connection or the login fails.
    pub fn check(&self) -> Result<(), SmtpError> {
        self.transport.test_connection().map(drop).map_err(SmtpError::Refused)
    }

    pub(super) fn send(&self, mail: &Mail) -> Result<(), SmtpError> {
        let message = self.message(mail)?;
        self.transport.send(&message).map(|_| ()).map_err(SmtpError::Refused)
    }

    pub(super) fn send_plain(&self, mail: &PlainMail) -> Result<(), SmtpError> {
        let PlainMail { to, subject, text, at } = mail;
        let message = self.build(to, subject, *at, text.clone())?;
        self.transport.send(&message).map(|_| ()).map_err(SmtpError::Refused)
    }

    fn message(&self, mail: &Mail) -> Result<Message, SmtpError> {
        self.build(&mail.to, mail.kind.subject(), mail.at, mail.body())
    }

    fn build(&self, to: &str, subject: &str, at: Timestamp, text: String) -> Result<Message, SmtpError> {
        let to = Mailbox::new(None, to.parse().map_err(SmtpError::Address)?);
        let date = UNIX_EPOCH + Duration::from_secs(u64::try_from(at.as_s()).unwrap_or_default());
        let builder = Message::builder().from(self.from.clone()).to(to).subject(subject).date(date);
        builder.header(ContentType::TEXT_PLAIN).body(text).map_err(SmtpError::Message)
    }
}

/// Returns the TLS mode of the URL, with more certificates to trust.
fn tls(url: &str, path: &Path) -> Result<Tls, SmtpError> {
    let refused = |why: String| SmtpError::Certificates { path: path.to_owned(), why };
    let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    if !pem.windows(17).any(|window| window == b"BEGIN CERTIFICATE") {
        return Err(refused("it contains no certificate".to_owned()));
    }
    let certificates = Certificate::from_pem(&pem).map_err(|error| refused(error.to_string()))?;
    let url = Url::parse(url).map_err(|error| refused(format!("the mail server's URL: {error}")))?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let parameters = TlsParameters::builder(host).add_root_certificate(certificates).build();
    let parameters = parameters.map_err(SmtpError::Url)?;
    Ok(match requested_protection(&url) {
        Protection::Wrapped => Tls::Wrapper(parameters),
        Protection::Required => Tls::Required(parameters),
        Protection::Opportunistic => Tls::Opportunistic(parameters),
        Protection::None => Tls::None,
    })
}

/// The encryption of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    /// TLS from the first byte.
    Wrapped,
    /// STARTTLS is required.
    Required,
    /// STARTTLS is used if the server offers it.
    Opportunistic,
    /// No encryption.
    None,
}

/// Returns the mode that the URL requests, parsed as the mail library does: the text of a password
/// is not a mode.
fn requested_protection(url: &Url) -> Protection {
    let mode = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, mode)| mode);
    match (url.scheme(), mode.as_deref()) {
        ("smtps", _) => Protection::Wrapped,
        (_, Some("required")) => Protection::Required,
        (_, Some("opportunistic")) => Protection::Opportunistic,
        _ => Protection::None,
    }
}

fn sends_readable(url: &Url) -> bool {
    match requested_protection(url) {
        Protection::Wrapped | Protection::Required => false,
        Protection::Opportunistic | Protection::None => !is_loopback(url.host_str().unwrap_or_default()),
    }
}

/// Returns whether a host is `localhost` or a loopback address. In URLs of this scheme addresses
/// are plain text, IPv6 in brackets.
fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match address.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

impl std::fmt::Debug for SmtpMailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SmtpMailer(***)")
    }
}

#[cfg(test)]
mod tests;
