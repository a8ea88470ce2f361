//! Mail leaves one after the other, so that an answer never waits for a mail server and its time tells nothing.

use tokio::sync::mpsc::Receiver;

use crate::config::Mail as MailSetting;
use crate::outbound::{Mail, Mailer, MailerError};

/// The mailer that the settings ask for.
pub(super) fn mailer(setting: &MailSetting) -> Result<Mailer, MailerError> {
    match setting {
        MailSetting::Console => Ok(Mailer::console()),
        MailSetting::Smtp { url, from } => Mailer::smtp(url.reveal(), from),
    }
}

/// Sends what comes until every sender is gone. A mail that fails is logged without its address or link; the person can
/// ask for another.
pub(super) async fn post(mailer: Mailer, mut mails: Receiver<Mail>) {
    while let Some(mail) = mails.recv().await {
        if let Err(error) = mailer.send(mail).await {
            tracing::error!(%error, "a mail was not sent");
        }
    }
}
