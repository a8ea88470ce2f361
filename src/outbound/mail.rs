//! The mails that promlet sends.

use std::time::Duration;

use crate::model::Timestamp;

/// The purpose of a mail: a link to use, or a notice about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailKind {
    /// A link that signs in.
    MagicLink,
    /// A link that sets a new password.
    PasswordReset,
    /// A link that creates an account.
    Signup,
    /// A link that proves a new address.
    EmailConfirm,
    /// Notice: a person tried to create an account for an address that has one.
    SignupKnown,
    /// Notice: the password was changed by its owner.
    PasswordChanged,
    /// Notice: the password was reset with a mailed link.
    PasswordWasReset,
    /// Notice to the old address: the account has another address now.
    EmailChanged,
    /// Notice: a second factor is required from now on.
    TwofaEnabled,
    /// Notice: a second factor is no longer required.
    TwofaDisabled,
    /// Notice: too many wrong codes after a correct password.
    TwofaFailures,
    /// Notice: an account of a sign-in provider can sign in here now.
    IdentityLinked,
    /// An invitation to an organisation.
    Invite,
}

impl MailKind {
    /// Returns the name in the console line.
    pub const fn as_str(self) -> &'static str {
        match self {
            MailKind::MagicLink => "magic_link",
            MailKind::PasswordReset => "password_reset",
            MailKind::Signup => "signup",
            MailKind::EmailConfirm => "email_confirm",
            MailKind::SignupKnown => "signup_known",
            MailKind::PasswordChanged => "password_changed",
            MailKind::PasswordWasReset => "password_was_reset",
            MailKind::EmailChanged => "email_changed",
            MailKind::TwofaEnabled => "twofa_enabled",
            MailKind::TwofaDisabled => "twofa_disabled",
            MailKind::TwofaFailures => "twofa_failures",
            MailKind::IdentityLinked => "identity_linked",
            MailKind::Invite => "invite",
        }
    }

    /// Returns whether the address may belong to no account, or any person may cause the mail. Such
    /// mails share half of the queue.
    pub(super) const fn may_go_to_strangers(self) -> bool {
        matches!(self, MailKind::Signup | MailKind::SignupKnown | MailKind::EmailConfirm | MailKind::Invite)
    }

    /// The subject line.
    pub const fn subject(self) -> &'static str {
        match self {
            MailKind::MagicLink => "Your sign-in link",
            MailKind::PasswordReset => "Set a new password",
            MailKind::Signup => "Finish signing up",
            MailKind::EmailConfirm => "Confirm your new address",
            MailKind::SignupKnown => "You already have an account",
            MailKind::PasswordChanged | MailKind::PasswordWasReset => "Your password was changed",
            MailKind::EmailChanged => "The address of your account was changed",
            MailKind::TwofaEnabled => "Your second factor was enabled",
            MailKind::TwofaDisabled => "Your second factor was removed",
            MailKind::TwofaFailures => "Your password may be compromised",
            MailKind::IdentityLinked => "A sign-in was linked to your account",
            MailKind::Invite => "You are invited to promlet",
        }
    }

    /// Returns the text of the mail. In a mail with a link, it states the effect of the link, and
    /// the link follows.
    const fn text(self) -> &'static str {
        match self {
            MailKind::MagicLink => "Open this link to sign in to promlet.",
            MailKind::PasswordReset => "Open this link to set a new password for promlet.",
            MailKind::Signup => "Open this link to create your account on promlet.",
            MailKind::EmailConfirm => {
                "Open this link to change the address of your promlet account to this one."
            }
            MailKind::SignupKnown => {
                "A sign-up for a promlet account with this address was requested. You already have one: sign in, or \
                 request a new password on the sign-in page. If it was not you, there is nothing to do."
            }
            MailKind::PasswordChanged => {
                "The password of your promlet account was changed, and all other sessions were ended. If it was not you, \
                 ask for a new password on the sign-in page at once."
            }
            MailKind::PasswordWasReset => {
                "The password of your promlet account was reset with a mailed link, and all sessions were ended. If it was \
                 not you, another person can read your mail: ask for a new password and secure your mailbox."
            }
            MailKind::EmailChanged => {
                "Your promlet account has another mail address now; this one is no longer used. If it was not you, write to \
                 the administrator of your promlet server."
            }
            MailKind::TwofaEnabled => {
                "Signing in to your promlet account now needs a code from your authenticator app. If it was not you, write \
                 to the administrator of your promlet server."
            }
            MailKind::TwofaDisabled => {
                "Signing in to your promlet account needs no second factor any more. If it was not you, change your password \
                 and enable it again."
            }
            MailKind::TwofaFailures => {
                "A sign-in to your promlet account reached the second factor and then gave too many wrong codes. If it was \
                 not you, another person knows your password or reads your mail: change the password."
            }
            MailKind::Invite => {
                "You are invited to an organisation on promlet. Open this link to see which, and to accept."
            }
            MailKind::IdentityLinked => {
                "An account of another service may now sign in to your promlet account. If it was not you, remove it in your \
                 settings and change your password."
            }
        }
    }
}

/// One mail, with a link or as a notice. Its debug form omits address and link.
#[derive(Clone, PartialEq, Eq)]
pub struct Mail {
    /// The recipient's address.
    pub to: String,
    /// The purpose.
    pub kind: MailKind,
    /// The link, which is a secret. Empty in a notice.
    pub url: String,
    /// How long the link is valid; zero in a notice.
    pub expires_in: Duration,
    /// The time of the request, which becomes the mail's date.
    pub at: Timestamp,
}

impl Mail {
    /// Returns a notice without a link.
    pub fn notice(to: impl Into<String>, kind: MailKind, at: Timestamp) -> Mail {
        Mail { to: to.into(), kind, url: String::new(), expires_in: Duration::ZERO, at }
    }

    /// Returns the line of the console mailer (docs/specification.md A6): `MAIL to=<email>
    /// kind=magic_link url=<url> expires_in=600`. The line of a notice has no `url` and no
    /// `expires_in`.
    pub fn console_line(&self) -> String {
        // Programs parse this line by fields, so no field may contain white space or control
        // characters.
        let field =
            |text: &str| text.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect::<String>();
        let (to, kind) = (field(&self.to), self.kind.as_str());
        match self.url.is_empty() {
            true => format!("MAIL to={to} kind={kind}"),
            false => {
                let (url, expires_in) = (field(&self.url), self.expires_in.as_secs());
                format!("MAIL to={to} kind={kind} url={url} expires_in={expires_in}")
            }
        }
    }

    /// Returns the text of the mail.
    pub fn body(&self) -> String {
        let text = self.kind.text();
        if self.url.is_empty() {
            return format!("{text}\n");
        }
        let minutes = self.expires_in.as_secs().div_ceil(60);
        let how_long = match minutes {
            2_880.. => format!("{} days", minutes / 1_440),
            _ => format!("{minutes} minutes"),
        };
        format!(
            "{text} It works once and for {how_long}.\n\n{}\n\n\
             If you did not ask for it, ignore this mail: nothing happens without the link.\n",
            self.url
        )
    }
}

/// A mail whose subject and text the caller writes, such as one about alerts. Its debug form omits
/// address and text.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainMail {
    /// The recipient's address.
    pub to: String,
    /// The subject: one line.
    pub subject: String,
    /// The text.
    pub text: String,
    /// The mail's date.
    pub at: Timestamp,
}

impl PlainMail {
    /// Returns the line of the console mailer: `MAIL to=<email> kind=alert subject=<subject>`, with
    /// underscores for spaces.
    pub fn console_line(&self) -> String {
        let field =
            |text: &str| text.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect::<String>();
        format!("MAIL to={} kind=alert subject={}", field(&self.to), field(&self.subject.replace(' ', "_")))
    }
}

impl std::fmt::Debug for PlainMail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainMail").field("subject", &self.subject).finish_non_exhaustive()
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
    fn the_console_line_has_the_documented_form() {
        assert_eq!(
            mail("ada@example.org").console_line(),
            "MAIL to=ada@example.org kind=magic_link url=http://localhost:8095/api/v1/auth/magic-link/verify?token=mgl_x expires_in=600"
        );
        assert_eq!(mail("a@b\nMAIL to=c").console_line().lines().count(), 1);
        let notice = Mail::notice("ada@example.org", MailKind::PasswordChanged, Timestamp::from_s(0));
        assert_eq!(notice.console_line(), "MAIL to=ada@example.org kind=password_changed");
    }

    #[test]
    fn a_mail_says_how_long_its_link_works_and_a_notice_has_none() {
        assert!(mail("a@b").body().contains("for 10 minutes.\n\nhttp://localhost:8095/"));
        let notice = Mail::notice("a@b", MailKind::TwofaFailures, Timestamp::from_s(0)).body();
        assert!(notice.contains("wrong codes") && !notice.contains("minutes"), "{notice}");
    }

    #[test]
    fn a_mail_does_not_print_its_link_or_address() {
        let printed = format!("{:?}", mail("ada@example.org"));
        assert!(!printed.contains("mgl_") && !printed.contains("ada"), "{printed}");
    }
}
