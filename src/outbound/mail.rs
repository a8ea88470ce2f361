//! One mail.

use std::time::Duration;

use crate::model::Timestamp;

/// What a mail is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailKind {
    /// A link that signs in.
    MagicLink,
    /// An invitation into an organisation.
    Invite,
}

impl MailKind {
    /// As the console line names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            MailKind::MagicLink => "magic_link",
            MailKind::Invite => "invite",
        }
    }

    /// The subject line.
    pub const fn subject(self) -> &'static str {
        match self {
            MailKind::MagicLink => "Your sign-in link",
            MailKind::Invite => "You are invited to promlet",
        }
    }
}

/// One mail that carries a link. Prints without address and link.
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
    /// When it was asked for: the mail's date.
    pub at: Timestamp,
}

impl Mail {
    /// The line of the console mailer: `MAIL to=<email> kind=magic_link url=<url> expires_in=600` (API.md A6).
    pub fn console_line(&self) -> String {
        // Programs read this line field by field, so no field may bring a space or a line of its own.
        let field =
            |text: &str| text.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect::<String>();
        let (to, url) = (field(&self.to), field(&self.url));
        format!("MAIL to={to} kind={} url={url} expires_in={}", self.kind.as_str(), self.expires_in.as_secs())
    }

    /// The text of the mail.
    pub fn body(&self) -> String {
        let minutes = self.expires_in.as_secs().div_ceil(60);
        match self.kind {
            MailKind::MagicLink => format!(
                "Open this link to sign in to promlet. It works once and for {minutes} minutes.\n\n{}\n\n\
                 If you did not ask for it, ignore this mail: nobody can sign in without the link.\n",
                self.url
            ),
            MailKind::Invite => format!(
                "Somebody invites you to an organisation on promlet. Open this link to see which, and to accept. It works \
                 once and for {} days.\n\n{}\n\n\
                 If you do not know what this is about, ignore this mail.\n",
                minutes.div_ceil(24 * 60),
                self.url
            ),
        }
    }
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail").field("kind", &self.kind).field("url", &"***").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(to: &str) -> Mail {
        Mail {
            to: to.into(),
            kind: MailKind::MagicLink,
            url: "http://localhost:8095/api/v1/auth/magic-link/verify?token=mgl_x".into(),
            expires_in: Duration::from_secs(600),
            at: Timestamp::from_s(0),
        }
    }

    #[test]
    fn the_console_line_is_the_contracts() {
        assert_eq!(
            mail("ada@example.org").console_line(),
            "MAIL to=ada@example.org kind=magic_link url=http://localhost:8095/api/v1/auth/magic-link/verify?token=mgl_x expires_in=600"
        );
        assert_eq!(mail("a@b\nMAIL to=c").console_line().lines().count(), 1);
    }

    #[test]
    fn a_mail_does_not_print_its_link_or_address() {
        let printed = format!("{:?}", mail("ada@example.org"));
        assert!(!printed.contains("mgl_") && !printed.contains("ada"), "{printed}");
    }
}
