//! The hub with receivers that hang, redirect, fail and panic.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::clock::Stopwatch;
use crate::entropy::Entropy;
use crate::model::{Alert, AlertSink as _, EgressRules};
use crate::notify::rows::NotifyRowKey;
use crate::sync::IgnorePoison as _;

/// A store in memory.
#[derive(Default)]
struct MemoryStore {
    rows: Mutex<BTreeMap<(OrgId, NotifyRowKey), Vec<u8>>>,
    documents: Mutex<BTreeMap<OrgId, String>>,
    panics: AtomicBool,
    fails: AtomicBool,
    /// How many further reads fail.
    failing_loads: AtomicUsize,
}

impl NotifyStore for MemoryStore {
    fn orgs(&self) -> Result<Vec<OrgId>, String> {
        Ok(self.documents.lock().ignore_poison().keys().copied().collect())
    }

    fn load(&self, org: OrgId) -> Result<Option<NotifyLoad>, String> {
        let fails = |left: usize| left.checked_sub(1);
        if self.failing_loads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok() {
            return Err("the disk is gone".to_owned());
        }
        let text = self.documents.lock().ignore_poison().get(&org).cloned();
        let Some(text) = text else { return Ok(None) };
        let rows = self.rows.lock().ignore_poison();
        let rows = rows.iter().filter(|((owner, _), _)| *owner == org);
        let row = |((_, key), value): (&(OrgId, NotifyRowKey), &Vec<u8>)| NotifyRow {
            key: *key,
            value: value.clone(),
        };
        let document = NotifyDocument::from_stored(&text).map_err(|problems| format!("{problems:?}"))?;
        let (external_url, expr_url) = (String::new(), String::new());
        Ok(Some(NotifyLoad {
            rows: rows.map(row).collect(),
            document: Some(document),
            external_url,
            expr_url,
        }))
    }

    fn save(&self, org: OrgId, changes: &NotifyChanges) -> Result<(), String> {
        if org == OrgId(1) && self.panics.swap(false, Ordering::SeqCst) {
            panic!("of a test");
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err("the disk is full".to_owned());
        }
        let mut rows = self.rows.lock().ignore_poison();
        for (key, value) in changes {
            match value {
                Some(value) => rows.insert((org, *key), value.clone()),
                None => rows.remove(&(org, *key)),
            };
        }
        Ok(())
    }
}

#[derive(Default)]
struct MemoryMailer(Mutex<Vec<PlainMail>>);

impl AlertMailer for MemoryMailer {
    fn send(&self, mail: &PlainMail) -> Result<(), AlertMailFailure> {
        assert!(!mail.to.starts_with("panic"), "of a test");
        self.0.lock().ignore_poison().push(mail.clone());
        Ok(())
    }
}

/// A receiver: its responses, and the bodies that it received.
struct FakeReceiver {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Value>>>,
    requests: Arc<AtomicUsize>,
}

/// Reads a request and returns its head and body.
fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        bytes.extend(&piece[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let length: usize = length.unwrap_or(0);
        while bytes.len() < end + 4 + length {
            let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
            bytes.extend(&piece[..read]);
        }
        return Some((head, bytes[end + 4..].to_vec()));
    }
}

impl FakeReceiver {
    /// Starts a receiver. An empty response means that it hangs.
    fn start(response: &'static str) -> FakeReceiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (bodies, requests): (Arc<Mutex<Vec<Value>>>, Arc<AtomicUsize>) = Default::default();
        let (seen, counted) = (Arc::clone(&bodies), Arc::clone(&requests));
        std::thread::spawn(move || {
            let mut hanging = Vec::new();
            while let Ok((mut stream, _)) = listener.accept() {
                let Some((_, body)) = read_request(&mut stream) else { continue };
                counted.fetch_add(1, Ordering::SeqCst);
                if response.is_empty() {
                    hanging.push(stream);
                    continue;
                }
                seen.lock().ignore_poison().extend(serde_json::from_slice(&body));
                let _ = stream.write_all(response.as_bytes());
            }
        });
        FakeReceiver { address, bodies, requests }
    }

    fn bodies(&self) -> Vec<Value> {
        self.bodies.lock().ignore_poison().clone()
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const REDIRECT: &str = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const FAILED: &str =
    "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\nconnection: close\r\n\r\noops";

struct HubWorld {
    hub: NotifyHub,
    store: Arc<MemoryStore>,
    mailer: Arc<MemoryMailer>,
    _runtime: tokio::runtime::Runtime,
}

impl HubWorld {
    fn start(documents: &[(u32, Value)], allow: &[&str]) -> HubWorld {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let store = Arc::new(MemoryStore::default());
        for (org, document) in documents {
            let read = NotifyDocument::parse(&document.to_string(), None, &mut Entropy::seeded(1));
            let read = read.unwrap_or_else(|problems| panic!("{problems:?}"));
            store.documents.lock().ignore_poison().insert(OrgId(*org), read.stored_text());
        }
        let mailer = Arc::new(MemoryMailer::default());
        let rules = EgressRules::parse(allow.iter().copied()).expect("valid");
        let hub = NotifyHub::start(NotifyDeps {
            store: Arc::clone(&store) as Arc<dyn NotifyStore>,
            mailer: Arc::clone(&mailer) as Arc<dyn AlertMailer>,
            egress: Egress::new(rules, &[]),
            runtime: runtime.handle().clone(),
            clock: Clock::System,
            mails_per_hour: 100,
            external_labels: Arc::default(),
            files: None,
        });
        let hub = hub.expect("started");
        hub.activate();
        HubWorld { hub, store, mailer, _runtime: runtime }
    }

    fn fire(&self, org: u32, name: &str) {
        let now = Clock::System.now();
        let alert = Alert {
            has_own_end: false,
            labels: [("alertname".to_owned(), name.to_owned())].into(),
            annotations: BTreeMap::new(),
            value: 1.0,
            starts_at: now,
            ends_at: now.plus_ms(240_000),
            resolved: false,
            expr: "up".to_owned(),
        };
        self.hub.send(OrgId(org), vec![alert], now);
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let watch = Stopwatch::start();
    while !is_so() {
        assert!(watch.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A document with one webhook per receiver.
fn hooks(receivers: &[&FakeReceiver]) -> Value {
    let hook = |(at, one): (usize, &&FakeReceiver)| json!({ "id": format!("h{at}"), "url": format!("http://{}/x", one.address), "timeout": "60s" });
    json!({
        "route": { "receiver": "team", "group_wait": "0s", "group_by": ["..."] },
        "receivers": [{ "name": "team", "webhook_configs": receivers.iter().enumerate().map(hook).collect::<Vec<_>>() }],
    })
}

#[test]
fn a_receiver_that_hangs_redirects_or_fails_delays_no_other() {
    let (hangs, redirects) = (FakeReceiver::start(""), FakeReceiver::start(REDIRECT));
    let (fails, works, other) =
        (FakeReceiver::start(FAILED), FakeReceiver::start(OK), FakeReceiver::start(OK));
    let world = HubWorld::start(
        &[(1, hooks(&[&hangs, &redirects, &fails, &works])), (2, hooks(&[&other]))],
        &["127.0.0.1"],
    );
    for number in 0..20 {
        world.fire(1, &format!("A{number}"));
        world.fire(2, &format!("A{number}"));
    }
    eventually("all arrive", || works.bodies().len() == 20 && other.bodies().len() == 20);
    assert_eq!(works.bodies()[0]["version"], "4");
    assert!(hangs.requests.load(Ordering::SeqCst) <= 2, "requests to one receiver at once are bounded");
    let (status, _) = world.hub.status(OrgId(1)).expect("loaded");
    let error = |at: usize| status.integrations[at].last_error.as_ref().map(|error| error.text.clone());
    assert_eq!(error(0), None);
    assert!(error(1).is_some_and(|text| text.contains("redirects are not followed")), "{status:?}");
    assert!(error(2).is_some_and(|text| text.contains("500: oops")), "{status:?}");
    assert!(status.integrations[2].next_retry.is_some());
    eventually("the outcomes are known", || {
        let (status, _) = world.hub.status(OrgId(1)).expect("loaded");
        status.integrations[0].pending == 20 && status.integrations[3].pending == 0
    });
}

#[test]
fn private_addresses_need_the_setting_of_the_operator() {
    let works = FakeReceiver::start(OK);
    let world = HubWorld::start(&[(1, hooks(&[&works]))], &[]);
    world.fire(1, "A");
    eventually("it is refused", || {
        let (status, _) = world.hub.status(OrgId(1)).expect("loaded");
        status.integrations[0]
            .last_error
            .as_ref()
            .is_some_and(|error| error.text.contains("not a public address"))
    });
    assert_eq!(works.requests.load(Ordering::SeqCst), 0);
}

#[test]
fn a_panic_in_one_organisation_is_counted_and_delays_no_other() {
    let (one, two) = (FakeReceiver::start(OK), FakeReceiver::start(OK));
    let world = HubWorld::start(&[(1, hooks(&[&one])), (2, hooks(&[&two]))], &["127.0.0.1"]);
    world.store.panics.store(true, Ordering::SeqCst);
    world.fire(1, "A");
    eventually("it panics", || world.hub.figures().panics == 1);
    world.fire(2, "A");
    eventually("the other one works", || two.bodies().len() == 1);
    // The organisation continues after its pause of 10 s.
    eventually("it works again", || {
        world.fire(1, "B");
        one.bodies().iter().any(|body| body["alerts"][0]["labels"]["alertname"] == "B")
    });
}

#[test]
fn a_store_that_fails_stops_no_notification_and_gets_the_state_later() {
    let works = FakeReceiver::start(OK);
    let world = HubWorld::start(&[(1, hooks(&[&works]))], &["127.0.0.1"]);
    world.store.fails.store(true, Ordering::SeqCst);
    world.fire(1, "A");
    eventually("it is sent", || works.bodies().len() == 1);
    eventually("storing fails", || world.hub.figures().store_errors > 0);
    let refused = world.hub.with_org(OrgId(1), |_, _| ());
    assert!(matches!(refused, Err(NotifyUnavailable::Store(_))));
    world.store.fails.store(false, Ordering::SeqCst);
    eventually("it is stored", || world.store.rows.lock().ignore_poison().len() == 2);
}

#[test]
fn an_organisation_that_cannot_be_read_is_loaded_later_with_the_alerts_of_its_pause() {
    let works = FakeReceiver::start(OK);
    let world = HubWorld::start(&[(1, hooks(&[&works]))], &["127.0.0.1"]);
    world.hub.deactivate();
    world.store.failing_loads.store(1, Ordering::SeqCst);
    world.hub.activate();
    eventually("reading fails", || world.hub.figures().store_errors == 1);
    world.fire(1, "A");
    // The pause has 10 s.
    eventually("it is sent", || works.bodies().len() == 1);
    assert_eq!(world.hub.figures().inbox_dropped, 0);
}

#[test]
fn mails_survive_a_panic_and_a_test_reports_each_integration() {
    let document = json!({
        "route": { "receiver": "team" },
        "receivers": [{ "name": "team", "email_configs": [{ "id": "m", "to": ["panic@b.c", "a@b.c"] }] }],
    });
    let world = HubWorld::start(&[(1, document)], &[]);
    let tests = world.hub.start_test(OrgId(1), "team").expect("loaded").expect("allowed");
    let reports = world._runtime.block_on(tests.reports());
    assert_eq!(reports.len(), 2);
    assert_eq!((reports[0].id.as_str(), reports[0].error.as_deref()), ("m/a@b.c", None));
    assert!(reports[1].error.as_ref().is_some_and(|error| error.contains("panicked")), "{reports:?}");
    assert_eq!(world.mailer.0.lock().ignore_poison().len(), 1);
}

#[test]
fn an_inactive_hub_sends_nothing_and_an_unknown_organisation_is_refused() {
    let works = FakeReceiver::start(OK);
    let world = HubWorld::start(&[(1, hooks(&[&works]))], &["127.0.0.1"]);
    assert!(matches!(world.hub.read_org(OrgId(9), |_, _| ()), Err(NotifyUnavailable::NoOrg)));
    world.hub.deactivate();
    assert!(matches!(world.hub.read_org(OrgId(1), |_, _| ()), Err(NotifyUnavailable::Inactive)));
    world.fire(1, "A");
    world.hub.activate();
    world.fire(1, "B");
    eventually("it is sent", || works.bodies().len() == 1);
    world.hub.close();
    assert_eq!(works.bodies()[0]["alerts"][0]["labels"]["alertname"], "B");
    assert_eq!(world.store.rows.lock().ignore_poison().len(), 2, "stored at the end");
}
