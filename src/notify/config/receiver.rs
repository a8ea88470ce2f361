//! Receivers and their integrations.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::reader::{Element, Problems, Section};
use super::secrets::INTEGRATION_LISTS;
use super::target::{TARGET_FIELDS, read_target};
use crate::model::{Target, TargetSecret};
use crate::notify::limits::{INTEGRATIONS_MAX, MESSAGE_ALERTS_MAX, RECEIVERS_MAX, RECIPIENTS_MAX};

/// A receiver: the integrations that a route sends to.
#[derive(Clone, Debug, PartialEq)]
pub struct NotifyReceiver {
    /// The name.
    pub name: Arc<str>,
    /// The indexes of its integrations in [`super::NotifyConfig::integrations`].
    pub integrations: Vec<usize>,
}

/// One way to reach people.
#[derive(Clone, Debug, PartialEq)]
pub struct NotifyIntegration {
    /// The stable id, unique in the document. The name of a recipient ends with `/` and the
    /// address.
    pub id: Arc<str>,
    /// The name of its receiver.
    pub receiver: Arc<str>,
    /// Whether it gets resolved alerts.
    pub send_resolved: bool,
    /// The longest time for a request, in milliseconds.
    pub timeout_ms: i64,
    /// The way.
    pub kind: IntegrationKind,
}

/// The kinds of integrations.
#[derive(Clone, Debug, PartialEq)]
pub enum IntegrationKind {
    /// Mail.
    Mail {
        /// The recipient.
        to: String,
    },
    /// The JSON of Alertmanager's webhooks.
    Webhook {
        /// The server.
        target: Target,
        /// The key that signs requests.
        secret: Option<TargetSecret>,
        /// The most alerts in one request.
        max_alerts: usize,
    },
    /// A topic of an ntfy server.
    Ntfy {
        /// The server.
        target: Target,
        /// The topic.
        topic: String,
        /// The priority of firing alerts, from 1 to 5.
        priority: u8,
    },
    /// A webhook that takes Slack's messages.
    Slack {
        /// The URL, which is a secret.
        target: Target,
        /// The channel, in place of the webhook's own.
        channel: Option<String>,
        /// The name of the sender.
        username: Option<String>,
    },
}

impl IntegrationKind {
    /// Returns the name of the kind.
    pub const fn as_str(&self) -> &'static str {
        match self {
            IntegrationKind::Mail { .. } => "email",
            IntegrationKind::Webhook { .. } => "webhook",
            IntegrationKind::Ntfy { .. } => "ntfy",
            IntegrationKind::Slack { .. } => "slack",
        }
    }

    /// Returns the server; none for mail.
    pub const fn target(&self) -> Option<&Target> {
        match self {
            IntegrationKind::Mail { .. } => None,
            IntegrationKind::Webhook { target, .. }
            | IntegrationKind::Ntfy { target, .. }
            | IntegrationKind::Slack { target, .. } => Some(target),
        }
    }
}

/// The receivers of a document, and their integrations.
#[derive(Debug, Default)]
pub(super) struct ReadReceivers {
    pub(super) receivers: Vec<NotifyReceiver>,
    pub(super) integrations: Vec<Arc<NotifyIntegration>>,
    pub(super) ids: BTreeSet<String>,
}

impl ReadReceivers {
    pub(super) fn read(&mut self, root: &Section<'_>, problems: &mut Problems) {
        let [mails, webhooks, ntfys, slacks] = INTEGRATION_LISTS;
        for element in root.list("receivers", RECEIVERS_MAX, problems) {
            let known = ["name", mails, webhooks, ntfys, slacks];
            let Some(section) = element.section(&known, problems) else { continue };
            let Some(name) = section.required("name", problems) else { continue };
            if name.len() > 128 || name.chars().any(char::is_control) {
                problems
                    .add(&section.at("name"), "at most 128 bytes without control characters are expected");
            }
            let name: Arc<str> = name.into();
            if self.receivers.iter().any(|other| other.name == name) {
                problems.add(&section.at("name"), format!("receiver {name:?} is given twice"));
            }
            let mut indexes = Vec::new();
            for list in INTEGRATION_LISTS {
                for element in section.list(list, INTEGRATIONS_MAX, problems) {
                    for one in self.read_one(list, &element, &name, problems).unwrap_or_default() {
                        indexes.push(self.integrations.len());
                        self.integrations.push(Arc::new(one));
                    }
                }
            }
            self.receivers.push(NotifyReceiver { name, integrations: indexes });
        }
        if self.integrations.len() > INTEGRATIONS_MAX {
            let message = format!("all receivers together have at most {INTEGRATIONS_MAX} integrations");
            problems.add("receivers", message);
        }
    }

    fn read_one(
        &mut self,
        list: &str,
        element: &Element<'_>,
        receiver: &Arc<str>,
        problems: &mut Problems,
    ) -> Option<Vec<NotifyIntegration>> {
        let [mails, webhooks, ntfys, _] = INTEGRATION_LISTS;
        let own: &[&str] = match list {
            list if list == mails => &["to"],
            list if list == webhooks => &["secret", "max_alerts"],
            list if list == ntfys => &["topic", "priority"],
            _ => &["channel", "username"],
        };
        let target_fields: &[&str] = if list == mails { &[] } else { &TARGET_FIELDS };
        let known: Vec<&str> =
            ["id", "send_resolved", "timeout"].iter().chain(own).chain(target_fields).copied().collect();
        let section = element.section(&known, problems)?;
        let id = read_id(&section, &mut self.ids, problems)?;
        let send_resolved = section.flag("send_resolved", true, problems);
        let timeout_ms = section.duration("timeout", 1_000..=60_000, problems).unwrap_or(10_000);
        let receiver = Arc::clone(receiver);
        let one = |id, kind| NotifyIntegration {
            id,
            receiver: Arc::clone(&receiver),
            send_resolved,
            timeout_ms,
            kind,
        };
        let kind = match list {
            // Each recipient gets a notification of its own, with retries of its own.
            list if list == mails => {
                let to = read_recipients(&section, problems)?;
                let mail = |to: String| one(format!("{id}/{to}").into(), IntegrationKind::Mail { to });
                return Some(to.into_iter().map(mail).collect());
            }
            list if list == webhooks => read_webhook(&section, problems)?,
            list if list == ntfys => read_ntfy(&section, problems)?,
            _ => IntegrationKind::Slack {
                target: read_target(&section, problems)?,
                channel: section.text("channel", problems).map(str::to_owned),
                username: section.text("username", problems).map(str::to_owned),
            },
        };
        Some(vec![one(id, kind)])
    }
}

/// Reads the id of an integration or Alertmanager, which must be new.
pub(super) fn read_id(
    section: &Section<'_>,
    ids: &mut BTreeSet<String>,
    problems: &mut Problems,
) -> Option<Arc<str>> {
    let id = section.required("id", problems)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if id.len() > 64 || !id.bytes().all(allowed) {
        problems.add(&section.at("id"), "1 to 64 of A-Z a-z 0-9 - _ are expected");
        return None;
    }
    if !ids.insert(id.to_owned()) {
        problems.add(&section.at("id"), format!("id {id:?} is given twice"));
        return None;
    }
    Some(id.into())
}

fn read_recipients(section: &Section<'_>, problems: &mut Problems) -> Option<BTreeSet<String>> {
    let to = match section.get("to").is_some_and(|to| to.value.is_array()) {
        true => section.texts("to", RECIPIENTS_MAX, problems),
        false => vec![(section.at("to"), section.required("to", problems)?)],
    };
    if to.is_empty() {
        problems.add(&section.at("to"), "at least one address is expected");
    }
    for (path, address) in &to {
        if !is_address(address) {
            problems.add(path, "a mail address is expected");
        }
    }
    Some(to.into_iter().map(|(_, address)| address.to_owned()).collect())
}

/// Returns whether a text has the form of a mail address. The mail server decides about the rest.
fn is_address(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !"<>()[]\\,;:\"@".contains(c);
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    (1..=64).contains(&local.len())
        && (1..=253).contains(&domain.len())
        && local.chars().all(is_plain)
        && domain.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
        && !domain.starts_with(['.', '-'])
        && !domain.ends_with(['.', '-'])
}

fn read_webhook(section: &Section<'_>, problems: &mut Problems) -> Option<IntegrationKind> {
    let secret = section.text("secret", problems);
    if secret.is_some_and(|secret| !(8..=512).contains(&secret.len())) {
        problems.add(&section.at("secret"), "8 to 512 bytes are expected");
    }
    // A request that relies on the stored secret must not become an unsigned one unnoticed.
    if secret.is_none() && section.flag("has_secret", false, problems) {
        problems
            .add(&section.at("secret"), "is required again, because the server of the URL is another one");
    }
    let most = u64::try_from(MESSAGE_ALERTS_MAX).unwrap_or(u64::MAX);
    let max_alerts = section.number("max_alerts", 0..=most, problems).unwrap_or(0);
    let max_alerts = if max_alerts == 0 { most } else { max_alerts };
    Some(IntegrationKind::Webhook {
        target: read_target(section, problems)?,
        secret: secret.map(TargetSecret::new),
        max_alerts: usize::try_from(max_alerts).unwrap_or(MESSAGE_ALERTS_MAX),
    })
}

fn read_ntfy(section: &Section<'_>, problems: &mut Problems) -> Option<IntegrationKind> {
    let topic = section.required("topic", problems)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if topic.len() > 64 || !topic.bytes().all(allowed) {
        problems.add(&section.at("topic"), "1 to 64 of A-Z a-z 0-9 - _ are expected");
    }
    let priority = section.number("priority", 1..=5, problems).unwrap_or(4);
    Some(IntegrationKind::Ntfy {
        target: read_target(section, problems)?,
        topic: topic.to_owned(),
        priority: u8::try_from(priority).unwrap_or(4),
    })
}
