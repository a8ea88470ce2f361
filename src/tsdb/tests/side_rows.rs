//! Tests of checkpoints of many series with side data.

use super::side::{SideContent, histogram, native, side_data};
use super::*;
use crate::model::Exemplar;

/// Series with start timestamps, every hundredth with native histograms and an exemplar, too.
const SERIES: i64 = 3_000;

fn name(n: i64) -> Labels {
    labels(&[("__name__", "requests_total"), ("n", &n.to_string())])
}

/// Writes a sample with a start timestamp to each series, `ago_s` seconds before the present.
fn write_all(tsdb: &Tsdb, ago_s: i64) {
    let at = NOW.plus_ms(-1_000 * ago_s);
    let mut batch = BatchBuilder::default();
    for n in 0..SERIES {
        batch.series(&name(n), [Sample { at, value: n as f64 }]);
        batch.start(at, at.plus_ms(-n));
        if n % 100 == 0 {
            batch.series(&native(&n.to_string()), []);
            batch.histograms([(at, histogram(n.cast_unsigned()))]);
            let labels = labels(&[("trace_id", &n.to_string())]);
            batch.exemplar(Exemplar { labels, value: 0.5, at });
        }
    }
    assert_eq!(tsdb.append(ORG, &batch.batch(), NOW).expect("stored").refused, 0);
}

#[test]
fn side_data_of_many_series_shares_the_rows_of_a_checkpoint_and_is_restored() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (mut tsdb, _) = open(dir.path());
    let restarted = |tsdb: Opened, held: &SideContent| {
        drop(tsdb);
        let (tsdb, report) = open(dir.path());
        assert_eq!(
            (report.read_only, report.notes, report.mode),
            (None, Vec::new(), RecoveryMode::Checkpoint)
        );
        assert!(side_data(&tsdb, ORG) == *held, "the content differs");
        tsdb
    };
    for round in 0..2 {
        write_all(&tsdb, 500 - 20 * round);
        // The side data of the head.
        let report = tsdb.checkpoint().expect("made");
        let rows_of_samples = u64::try_from(SERIES / 32 + 1).expect("few");
        assert!(report.rows < rows_of_samples + 60, "{report:?}");
        write_all(&tsdb, 490 - 20 * round);
        let held = side_data(&tsdb, ORG);
        assert!(held.values().filter(|(_, starts, _)| starts.len() >= 2).count() >= 2_900);
        tsdb = restarted(tsdb, &held);
        // The side data that a seal leaves, as at a clean stop.
        tsdb.seal(NOW).expect("sealed");
        let report = tsdb.checkpoint().expect("made");
        assert!(report.rows < 40, "{report:?}");
        tsdb = restarted(tsdb, &held);
    }
}
