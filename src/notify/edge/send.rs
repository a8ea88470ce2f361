//! Deliveries: requests as tasks of the runtime, mails by a thread of their own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{AlertMailer, NotifyDeps};
use crate::model::{OrgId, Target};
use crate::notify::config::NotifyIntegration;
use crate::notify::delivery::DeliveryOutcome;
use crate::notify::message::{DeliveryContent, NotifyRequest};
use crate::outbound::{Bytes, Egress, PlainMail, TargetClient, TargetError, TargetMethod, TargetRequest};
use crate::sync::IgnorePoison as _;

/// The most bytes of a response's body.
const RESPONSE_BYTES_MAX: u64 = 64 << 10;
/// The longest wait for the end of a response whose status is known already.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// The most mails that wait for the thread.
pub(super) const MAILS_WAITING_MAX: usize = 1_024;

/// The result of a test of one integration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestReport {
    /// The id of the integration.
    pub id: String,
    /// The kind, such as `webhook`.
    pub kind: &'static str,
    /// The error; none if the receiver accepted the test.
    pub error: Option<String>,
}

/// Tests of the integrations of a receiver, which are being sent.
#[derive(Debug)]
pub struct RunningTests(pub(super) Vec<(Arc<NotifyIntegration>, oneshot::Receiver<DeliveryOutcome>)>);

impl RunningTests {
    /// Waits for the outcomes.
    pub async fn reports(self) -> Vec<TestReport> {
        let mut reports = Vec::new();
        for (integration, outcome) in self.0 {
            let error = match outcome.await {
                Ok(DeliveryOutcome::Sent) => None,
                Ok(DeliveryOutcome::Retry { error, .. } | DeliveryOutcome::Refused { error }) => Some(error),
                Err(_) => Some("the server stops".to_owned()),
            };
            reports.push(TestReport {
                id: integration.id.to_string(),
                kind: integration.kind.as_str(),
                error,
            });
        }
        reports
    }
}

/// Receives the outcome of a delivery.
pub(super) type OnOutcome = Box<dyn FnOnce(DeliveryOutcome) + Send>;

/// A mail, and the receiver of its outcome.
pub(super) struct MailJob {
    mail: PlainMail,
    on_outcome: OnOutcome,
}

/// Starts deliveries.
pub(super) struct Deliverer {
    deps: NotifyDeps,
    clients: Mutex<BTreeMap<(OrgId, String), TargetClient>>,
    /// `None` after the sender has ended.
    mails: Mutex<Option<SyncSender<MailJob>>>,
}

fn retry(error: impl Into<String>) -> DeliveryOutcome {
    DeliveryOutcome::Retry { after_ms: None, error: error.into() }
}

impl Deliverer {
    pub(super) fn new(deps: NotifyDeps, mails: SyncSender<MailJob>) -> Deliverer {
        Deliverer { deps, clients: Mutex::default(), mails: Mutex::new(Some(mails)) }
    }

    /// Ends the thread of mails once its queue is empty.
    pub(super) fn end_mails(&self) {
        self.mails.lock().ignore_poison().take();
    }

    /// Forgets the connections of an organisation.
    pub(super) fn forget(&self, org: OrgId) {
        self.clients.lock().ignore_poison().retain(|(owner, _), _| *owner != org);
    }

    /// Returns the client of a server. A changed target gets a new one.
    fn client(&self, key: (OrgId, String), target: &Target) -> Result<TargetClient, String> {
        let mut clients = self.clients.lock().ignore_poison();
        if let Some(client) = clients.get(&key).filter(|client| client.target() == target) {
            return Ok(client.clone());
        }
        let client = TargetClient::new(target.clone(), self.deps.egress.clone())?;
        clients.insert(key, client.clone());
        Ok(client)
    }

    /// Starts a delivery; never waits.
    pub(super) fn start(
        &self,
        org: OrgId,
        client_key: String,
        content: DeliveryContent,
        on_outcome: OnOutcome,
    ) {
        match content {
            DeliveryContent::Request(request) => match self.client((org, client_key), &request.target) {
                Ok(client) => {
                    self.deps.runtime.spawn(async move {
                        // The request runs in a task of its own, so that a panic has an outcome.
                        let sent = tokio::spawn(exchange(client, *request)).await;
                        on_outcome(sent.unwrap_or_else(|_| retry("the request panicked")));
                    });
                }
                Err(why) => on_outcome(DeliveryOutcome::Refused { error: why }),
            },
            DeliveryContent::Mail(mail) => {
                let mails = self.mails.lock().ignore_poison();
                let job = MailJob { mail, on_outcome };
                let Some(mails) = &*mails else { return (job.on_outcome)(retry("the server stops")) };
                if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = mails.try_send(job) {
                    (job.on_outcome)(retry("too many mails wait"));
                }
            }
        }
    }
}

/// Checks that a target can be used, without a request.
pub(super) fn check_target(target: &Target, egress: &Egress) -> Result<(), String> {
    TargetClient::new(target.clone(), egress.clone()).map(drop)
}

async fn exchange(client: TargetClient, request: NotifyRequest) -> DeliveryOutcome {
    let NotifyRequest { suffix, headers, body, timeout_ms, .. } = request;
    let request = TargetRequest {
        method: TargetMethod::Post,
        suffix,
        headers,
        body: Bytes::from(body),
        timeout: Duration::from_millis(timeout_ms.unsigned_abs()),
        body_bytes_max: RESPONSE_BYTES_MAX,
    };
    let response = match client.send(request).await {
        Ok(response) => response,
        Err(error) => return failed(&error, None),
    };
    if (200..300).contains(&response.status) {
        // The status is the acknowledgement; the rest frees the connection.
        drop(tokio::time::timeout(DRAIN_TIME, response.body.bytes()).await);
        return DeliveryOutcome::Sent;
    }
    let after = response.retry_after_s().and_then(|seconds| i64::try_from(seconds).ok());
    let error = tokio::time::timeout(DRAIN_TIME, response.into_error()).await;
    match error {
        Ok(error) => failed(&error, after.map(|seconds| seconds.saturating_mul(1_000))),
        Err(_) => retry("the response did not end"),
    }
}

fn failed(error: &TargetError, after_ms: Option<i64>) -> DeliveryOutcome {
    let text = error.to_string();
    match error {
        // The receiver requests another attempt.
        TargetError::Refused { status: 408 | 425 | 429, .. } => {
            DeliveryOutcome::Retry { after_ms, error: text }
        }
        TargetError::Refused { .. }
        | TargetError::AddressRefused { .. }
        | TargetError::InvalidRequest(_)
        | TargetError::InvalidResponse(_) => DeliveryOutcome::Refused { error: text },
        _ => DeliveryOutcome::Retry { after_ms, error: text },
    }
}

/// Sends mails until the queue ends.
pub(super) fn run_mails(mailer: &Arc<dyn AlertMailer>, jobs: &Receiver<MailJob>) {
    while let Ok(MailJob { mail, on_outcome }) = jobs.recv() {
        let sent = catch_unwind(AssertUnwindSafe(|| mailer.send(&mail)));
        on_outcome(match sent {
            Ok(Ok(())) => DeliveryOutcome::Sent,
            Ok(Err(failure)) if failure.is_permanent => DeliveryOutcome::Refused { error: failure.text },
            Ok(Err(failure)) => retry(failure.text),
            Err(_) => retry("sending the mail panicked"),
        });
    }
}
