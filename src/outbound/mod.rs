//! Messages out: mail, by SMTP, on the console, or kept for a test.
//!
//! Console mail is one line on standard output, flushed at once:
//! `MAIL to=<email> kind=magic_link url=<url> expires_in=600` (API.md A6). It is the only thing besides the banner
//! and the demo's lines that standard output carries; logs go to standard error.

use std::time::Duration;

/// What a mail is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailKind {
    /// A link that signs in.
    MagicLink,
}

impl MailKind {
    /// As the console line names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            MailKind::MagicLink => "magic_link",
        }
    }
}

/// One mail that carries a link.
#[derive(Clone, PartialEq, Eq)]
pub struct Mail {
    /// To whom.
    pub to: String,
    /// What about.
    pub kind: MailKind,
    /// The link; a secret.
    pub url: String,
    /// How long the link is good for.
    pub expires_in: Duration,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail").field("kind", &self.kind).field("url", &"***").finish_non_exhaustive()
    }
}
