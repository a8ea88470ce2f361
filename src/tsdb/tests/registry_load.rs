//! Tests that a start loads registries with the same result as one record after the other.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::model::{MetricKind, MetricMetadata};
use crate::tsdb::recovery::registry_load::load;
use crate::tsdb::series::definition::Definitions;
use crate::tsdb::series::definition_columns::DefinitionColumns;
use crate::tsdb::series::registry::{self, End, ReadRegistry};
use crate::tsdb::series::table::Lookup;
use crate::tsdb::series::table::load::BulkLoader;
use crate::tsdb::series::{identity, metadata};
use crate::tsdb::wal::record::RecordKind;

type LabelPairs = Vec<(String, String)>;

fn folder(dir: &Path) -> Folder {
    Folder {
        head: dir.join("head"),
        series: dir.join("series"),
        segments: dir.join("segments"),
        store: STORE,
    }
}

fn body(series: &[(u32, LabelPairs)]) -> Vec<u8> {
    let mut definitions = Definitions::default();
    for (id, pairs) in series {
        definitions.add(*id, pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
    definitions.finish()
}

/// The names in a store: labels by id, the number of series, descriptions of metrics, and counters.
#[derive(Debug, PartialEq, Eq)]
struct LoadedNames {
    labels: Vec<Option<String>>,
    live: u32,
    described: BTreeSet<String>,
    unregistered: usize,
    log_bytes: u64,
}

fn known(stores: &Stores) -> Option<LoadedNames> {
    let store = stores.org(ORG)?;
    let table = store.table();
    // The ids of these tests are small.
    let labels = (0..table.ids_end().min(2_000)).map(|id| Some(table.labels(id)?.to_string())).collect();
    let metadata = store.metadata();
    let described = metadata.iter().map(|(name, known)| format!("{name} {known:?}")).collect();
    let log_bytes = store.usage.log_bytes.load(Ordering::Relaxed);
    let unregistered = table.unregistered.len() + table.pending.len() + metadata.unregistered.len();
    Some(LoadedNames { labels, live: table.live(), described, unregistered, log_bytes })
}

/// Reads a registry in both ways.
fn both(dir: &Path, path: &Path) -> [(String, Option<LoadedNames>, Stores); 2] {
    let stores = || Stores::new([5; 32], OrgLimits::default());
    let (all, one) = (stores(), stores());
    let files = [(ORG, path.to_owned())];
    let found = load(&folder(dir), &all, &files, &ProgressObserver::default()).map(|mut read| read.remove(0));
    let mut scratch = Vec::new();
    let expected = registry::read(path, STORE, ORG, &mut |kind, body| {
        one.apply(Record::read(0, ORG, kind, body), &mut scratch, None).is_ok()
    });
    if matches!(expected, Ok(ReadRegistry::Valid(_))) {
        one.org_or_new(ORG);
    }
    let text = |read: Result<ReadRegistry, OpenError>| format!("{read:?}");
    [(text(found), known(&all), all), (text(expected), known(&one), one)]
}

/// Checks that every series is found by its labels, and that a new one gets the next id.
fn assert_found(stores: &Stores) {
    let Some(store) = stores.org(ORG) else { return };
    let mut table = store.table_mut();
    for id in 0..table.ids_end().min(2_000) {
        let Some(labels) = table.labels(id) else { continue };
        let pairs: Vec<(&str, &str)> = labels.iter().map(|label| (label.name, label.value)).collect();
        assert_eq!(table.find_or_add(&pairs, 0, &mut Lookup::default()), Ok(id), "{labels}");
    }
    let next = table.ids_end();
    assert_eq!(
        table.find_or_add(&[("__name__", "new"), ("x", "y")], u32::MAX, &mut Lookup::default()),
        Ok(next)
    );
}

fn pairs() -> impl Strategy<Value = LabelPairs> {
    let name = prop_oneof![3 => Just("__name__".to_owned()), 5 => "[a-c]"];
    prop::collection::btree_map(name, "[a-c]{1,2}", 0..4).prop_map(|pairs| pairs.into_iter().collect())
}

/// Generates registries that no store writes: repeated ids and label sets, and huge ids.
fn registry() -> impl Strategy<Value = Vec<Vec<(u32, LabelPairs)>>> {
    let id = prop_oneof![60 => 0u32..200, 1 => any::<u32>()];
    prop::collection::vec(prop::collection::vec((id, pairs()), 0..30), 0..5)
}

/// Generates registries as the store writes them: each id and each label set once, almost in the
/// order of the ids.
fn ordinary() -> impl Strategy<Value = Vec<Vec<(u32, LabelPairs)>>> {
    let sets =
        prop::collection::btree_set(pairs(), 1..120).prop_map(|sets| sets.into_iter().collect::<Vec<_>>());
    (sets, prop::collection::vec(any::<prop::sample::Index>(), 0..8), 1usize..40).prop_map(
        |(sets, swaps, rows)| {
            let series: Vec<(u32, LabelPairs)> = (0u32..).map(|index| index * 3).zip(sets).collect();
            let mut groups: Vec<Vec<(u32, LabelPairs)>> = series.chunks(7).map(<[_]>::to_vec).collect();
            for swap in swaps {
                let at = swap.index(groups.len());
                let next = (at + 1).min(groups.len() - 1);
                groups.swap(at, next);
            }
            groups.concat().chunks(rows).map(<[_]>::to_vec).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_registry_loads_like_one_record_after_the_other(
        registry in prop_oneof![registry(), ordinary()],
        flipped in proptest::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let description = MetricMetadata { name: "up", kind: MetricKind::Gauge, help: "Is it.", unit: "" };
        let mut records: Vec<(RecordKind, Vec<u8>)> =
            registry.iter().map(|series| (RecordKind::RegistrySeries, body(series))).collect();
        let body = metadata::encode([description].into_iter());
        records.insert(records.len() / 2, (RecordKind::RegistryMetadata, body));
        registry::append(dir.path(), STORE, ORG, End::default(), &records).expect("written");
        let path = registry::path_of(dir.path(), ORG);
        if let Some(flipped) = flipped {
            let mut bytes = std::fs::read(&path).expect("read");
            let at = flipped.index(bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            std::fs::write(&path, bytes).expect("written");
        }
        let [(found, all, stores), (expected, one, _)] = both(dir.path(), &path);
        prop_assert_eq!((found, all), (expected, one));
        assert_found(&stores);
    }

    #[test]
    fn a_registry_written_by_the_store_takes_the_fast_path(registry in ordinary()) {
        let mut loading = BulkLoader::new(identity::HashSecret::of(&[1; 32], ORG.0));
        let mut sheet = DefinitionColumns::default();
        for series in &registry {
            sheet.read(&body(series)).expect("a body");
            prop_assert_eq!(loading.add(&mut sheet), Ok(()));
        }
        let (table, _) = loading.finish().expect("the fast path");
        for (id, pairs) in registry.iter().flatten() {
            let labels = Labels::from_pairs(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            prop_assert_eq!(table.labels(*id), Some(labels));
        }
        prop_assert_eq!(table.live() as usize, registry.iter().flatten().count());
    }
}

/// 40,000 series of 1,000 instances: several windows of the file, two threads for the hashes,
/// columns of every width.
#[test]
fn a_large_registry_loads_like_one_record_after_the_other() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let pairs = |id: u32| -> LabelPairs {
        let (instance, metric) = (id / 40, id % 40);
        let mut pairs = vec![
            ("__name__".to_owned(), format!("metric_{metric}_total")),
            ("cluster".to_owned(), "one".to_owned()),
            ("instance".to_owned(), format!("10.0.{}.{}:9100", instance / 250, instance % 250)),
            ("uid".to_owned(), format!("{:024x}", u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15))),
        ];
        if metric % 3 == 0 {
            pairs.remove(1);
        }
        pairs
    };
    let series: Vec<(u32, LabelPairs)> = (0..40_000).map(|id| (id, pairs(id))).collect();
    let records: Vec<(RecordKind, Vec<u8>)> =
        series.chunks(3_000).map(|series| (RecordKind::RegistrySeries, body(series))).collect();
    let end = registry::append(dir.path(), STORE, ORG, End::default(), &records).expect("written");
    assert!(end.bytes > 1 << 20, "{} bytes", end.bytes);
    let [(found, all, stores), (expected, one, _)] = both(dir.path(), &registry::path_of(dir.path(), ORG));
    assert_eq!((found, all), (expected, one));
    assert_found(&stores);
    let store = stores.org(ORG).expect("an organisation");
    let mut table = store.table_mut();
    for (id, pairs) in &series {
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(table.find_or_add(&pairs, 0, &mut Lookup::default()), Ok(*id));
    }
}

#[test]
fn an_observer_sees_every_record_and_can_stop_the_load_at_any() {
    let series = |id: u32, job: &str| {
        vec![(id, vec![("__name__".to_owned(), "up".to_owned()), ("job".to_owned(), job.to_owned())])]
    };
    let ordinary = vec![body(&series(0, "a")), body(&series(1, "b")), body(&series(2, "c"))];
    // A registry that repeats a label set is read one record after the other.
    let odd = [ordinary.clone(), vec![body(&series(3, "a"))]].concat();
    for bodies in [ordinary, odd] {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let records: Vec<_> = bodies.into_iter().map(|body| (RecordKind::RegistrySeries, body)).collect();
        registry::append(dir.path(), STORE, ORG, End::default(), &records).expect("written");
        let files = [(ORG, registry::path_of(dir.path(), ORG))];
        let start = |stop_at: usize| {
            let heard: Arc<Mutex<Vec<OpenStep>>> = Arc::default();
            let hearing = Arc::clone(&heard);
            let observer = ProgressObserver::new(move |step| {
                let mut heard = hearing.lock().expect("no panic");
                heard.push(*step);
                if heard.len() > stop_at { OpenControl::Stop } else { OpenControl::Continue }
            });
            let stores = Stores::new([5; 32], OrgLimits::default());
            let read = load(&folder(dir.path()), &stores, &files, &observer);
            (read, std::mem::take(&mut *heard.lock().expect("no panic")))
        };
        let (read, heard) = start(usize::MAX);
        assert!(read.is_ok() && heard.len() >= records.len(), "{heard:?}");
        assert!(heard.iter().all(|step| (step.file, step.files) == (1, 1) && step.done <= step.all));
        assert!(heard.is_sorted_by_key(|step| step.done));
        for stop_at in 0..heard.len() {
            let (read, _) = start(stop_at);
            assert!(matches!(read, Err(OpenError::Stopped)), "{stop_at}: {read:?}");
        }
    }
}
