//! The mailer that the settings configure.

use std::sync::Arc;

use crate::config::MailSetting;
use crate::outbound::{Mailer, SmtpError, SmtpMailer};

/// The warning that mail may leave this machine unencrypted.
pub(super) const READABLE: &str = concat!(
    "PROMLET_SMTP_URL does not require TLS: anyone who can read or change the traffic to the mail server ",
    "can read sign-in links",
);
/// The advice for that warning.
pub(super) const READABLE_NEXT: &str = "set ?tls=required in it, or use smtps://";

/// Returns whether mail may leave this machine unencrypted.
pub(super) fn sends_readable(mailer: &Mailer) -> bool {
    matches!(mailer, Mailer::Smtp(smtp) if smtp.sends_readable())
}

/// Creates the configured mailer.
pub(super) fn mailer(setting: &MailSetting) -> Result<Mailer, SmtpError> {
    match setting {
        MailSetting::Console => Ok(Mailer::Console),
        MailSetting::Smtp { url, from, ca_file } => {
            let mailer = SmtpMailer::new(url.reveal(), from, ca_file.as_deref())?;
            Ok(Mailer::Smtp(Arc::new(mailer)))
        }
    }
}
