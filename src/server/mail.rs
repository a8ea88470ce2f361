//! Where mail goes.

use std::sync::Arc;

use crate::config::Mail as MailSetting;
use crate::outbound::{Mailer, SmtpError, SmtpMailer};

/// The mailer that the settings ask for.
pub(super) fn mailer(setting: &MailSetting) -> Result<Mailer, SmtpError> {
    match setting {
        MailSetting::Console => Ok(Mailer::Console),
        MailSetting::Smtp { url, from, ca_file } => {
            let mailer = SmtpMailer::new(url.reveal(), from, ca_file.as_deref())?;
            Ok(Mailer::Smtp(Arc::new(mailer)))
        }
    }
}
