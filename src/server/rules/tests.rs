//! Rule files while the accounts and the store refuse changes.

use super::*;
use crate::entropy::Entropy;
use crate::identity::{Argon2Cost, Bootstrap, Foundation, IdentityOptions, Password, USERS_TABLE};
use crate::kv::{Control, ControlOptions, DataFolder, MasterKey};
use crate::model::{Access, GateMode, TimeRange, is_stale};
use crate::promql::syntax::{Caps, parse_selector};
use crate::tsdb::SampleColumns;

/// A server without threads, on a folder.
struct OpenServer {
    control: Arc<Control>,
    identity: Identity,
    tsdb: Arc<Tsdb>,
    engine: Arc<RuleEngine>,
    files: RuleFiles,
    is_due: AtomicBool,
    clock: Clock,
}

impl OpenServer {
    fn open(dir: &Path, now: Timestamp) -> OpenServer {
        let (mut rng, clock) = (Entropy::seeded(7), Clock::manual(now));
        let folder = Arc::new(DataFolder::open(&dir.join("store"), now, &mut rng).expect("a folder"));
        let options = ControlOptions { now, users_table: USERS_TABLE };
        let control = Arc::new(Control::open(&folder, &options).expect("control").0);
        let marked = Arc::clone(&folder);
        let foundation = Foundation {
            control: Arc::clone(&control),
            master_key: MasterKey([9; 32]),
            last_stop: folder.last_stop(),
            mark_initialised: Box::new(move |now| marked.mark_initialised(now)),
        };
        let argon2 = Argon2Cost { memory_kib: 8, passes: 1, lanes: 1 };
        let options = IdentityOptions { argon2, ..IdentityOptions::default() };
        let identity = Identity::open(foundation, options, now, &mut rng).expect("identity");
        let password = Password("correct horse battery staple");
        let bootstrap = Bootstrap { email: "ada@example.com", password, org: "acme" };
        identity.bootstrap(&bootstrap, now, &mut rng).expect("set up");
        let home =
            crate::tsdb::Home { dir: folder.path(), store: folder.store_id(), control: Arc::clone(&control) };
        let (tsdb, _) = Tsdb::open(home, crate::tsdb::Options::default(), &mut rng, now).expect("a store");
        let tsdb = Arc::new(tsdb);
        let files = RuleFiles {
            path: Some(dir.join("rules.yml")),
            org: None,
            loaded: Vec::new(),
            unstored: None,
            are_ends_planned: false,
            waits_for: None,
        };
        let engine = RuleEngine::scaffold(&tsdb, &clock);
        OpenServer { control, identity, tsdb, engine, files, is_due: AtomicBool::new(true), clock }
    }

    fn tick(&mut self, now: Timestamp) {
        if let Clock::Manual(ms) = &self.clock {
            ms.store(now.as_ms(), Ordering::SeqCst);
        }
        self.files.follow(&self.identity, &self.engine, &self.is_due, &self.clock);
        self.engine.run_due(now);
    }

    /// Returns the samples of `y`: seconds since 1970, and whether each is a marker.
    fn samples(&self) -> Vec<(i64, bool)> {
        let org = self.identity.orgs().expect("read")[0].id;
        let snapshot = self.tsdb.snapshot(&Access::whole(org));
        let matchers = parse_selector("y", &Caps::default()).expect("valid");
        let mut columns = SampleColumns::default();
        for series in snapshot.select(&matchers, TimeRange::ALL) {
            snapshot.read(series.id, TimeRange::ALL, &mut columns);
        }
        columns.times.iter().zip(&columns.values).map(|(ms, value)| (ms / 1_000, is_stale(*value))).collect()
    }
}

/// A primary that waits for its follower refuses changes of the accounts and samples at its start.
#[test]
fn series_of_rules_that_left_a_file_end_after_a_start_that_refuses_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |rules: &str| {
        let text = format!("groups: [{{name: g, interval: 10s, rules: [{rules}]}}]");
        std::fs::write(dir.path().join("rules.yml"), text).expect("written");
    };
    let at = |seconds: i64| Timestamp::from_s(1_790_000_000 + seconds);
    write("{record: y, expr: '1'}");
    let mut server = OpenServer::open(dir.path(), at(0));
    (0..=20).for_each(|seconds| server.tick(at(seconds)));
    let before = server.samples();
    assert_eq!((before.len(), server.files.unstored.is_none()), (2, true));
    drop(server);

    write("");
    let mut server = OpenServer::open(dir.path(), at(25));
    server.control.gate().set_mode(GateMode::Synchronous);
    (25..=60).for_each(|seconds| server.tick(at(seconds)));
    assert_eq!(server.samples(), before, "the store refuses the markers");
    assert!(server.files.unstored.is_some(), "the accounts refuse the groups");
    server.control.gate().set_mode(GateMode::Open);
    (61..=80).for_each(|seconds| server.tick(at(seconds)));
    // Two intervals after the start.
    let end = (at(25).as_s() + 20, true);
    assert_eq!(server.samples(), [&before[..], &[end]].concat());
    assert!(server.files.unstored.is_none());
    let since = at(80).plus_ms(-REPLACED_MS_MAX);
    let removed = server.identity.removed_file_rule_groups(&[], since, at(80)).expect("read");
    let mut times: Vec<Timestamp> = removed.iter().map(|one| one.removed_at).collect();
    times.sort_unstable();
    assert_eq!(times, [at(25), at(80)], "the former group was removed at the start");
}
