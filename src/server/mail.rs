//! Mail leaves one after the other, so that an answer never waits for a mail server and its time tells nothing.

use std::sync::Arc;

use tokio::sync::mpsc::Receiver;

use crate::config::Mail as MailSetting;
use crate::outbound::{Mail, MailQueue, Mailer, SmtpError, SmtpMailer};

/// The mailer that the settings ask for.
pub(super) fn mailer(setting: &MailSetting) -> Result<Mailer, SmtpError> {
    match setting {
        MailSetting::Console => Ok(Mailer::Console),
        MailSetting::Smtp { url, from } => Ok(Mailer::Smtp(Arc::new(SmtpMailer::new(url.reveal(), from)?))),
    }
}

/// Hands mails from the edge to the queue, until every sender is gone.
pub(super) async fn post(queue: MailQueue, mut mails: Receiver<Mail>) {
    while let Some(mail) = mails.recv().await {
        if let Err(error) = queue.send(mail) {
            tracing::error!(%error, "a mail was not sent; the person can ask for another");
        }
    }
}
