//! Results as JSON and as gzip: `cargo bench --bench json`.
//!
//! Data: 200 series of 240 points 15 s apart, with values of one kind each. Printed: nanoseconds
//! and bytes per point; for gzip from values to compressed bytes.

use promlet::api::encoding::{Coding, Effort};
use promlet::api::prom_json;
use promlet::clock::Stopwatch;
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample, Timestamp};
use promlet::promql::{MatrixSeries, Value};

const SERIES: usize = 200;
const POINTS: i64 = 240;
const ROUNDS: usize = 30;

fn matrix(mut value: impl FnMut() -> f64) -> Value {
    let series = |n: usize| MatrixSeries {
        labels: Labels::from_pairs([("instance", format!("host-{n}:9100").as_str()), ("job", "node")]),
        samples: (0..POINTS)
            .map(|i| Sample { at: Timestamp::from_s(1_795_222_800 + i * 15), value: value() })
            .collect(),
        histograms: Vec::new(),
    };
    Value::Matrix((0..SERIES).map(series).collect())
}

fn main() {
    let mut rng = Entropy::seeded(1);
    let mut unit = move || rng.unit();
    let kinds: [(&str, Value); 5] = [
        ("whole", matrix(|| (unit() * 1e7).round())),
        ("hundredths", matrix(|| (unit() * 1e5).round() / 100.0)),
        ("rates", matrix(|| (unit() * 1e6).round() / 285.0)),
        ("tiny", matrix(|| unit() * 1e-8)),
        ("ones", matrix(|| 1.0)),
    ];
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let points = SERIES as f64 * POINTS as f64;
    println!("{:>10}  {:>8}  {:>8}  {:>8}  {:>8}", "", "ns", "bytes", "gzip ns", "gzip B");
    for (name, value) in kinds {
        let (mut plain_ms, mut gzip_ms, mut sizes) = (f64::MAX, f64::MAX, (0, 0));
        for _ in 0..ROUNDS {
            let watch = Stopwatch::start();
            let mut out = Vec::new();
            prom_json::result(&value, usize::MAX, &mut out).expect("unbounded");
            plain_ms = plain_ms.min(watch.elapsed_ms());
            sizes.0 = out.len();
            let (coded, _) = Coding::Gzip.whole(out, Effort::Least);
            gzip_ms = gzip_ms.min(watch.elapsed_ms());
            sizes.1 = coded.len();
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let each = |size: usize| size as f64 / points;
        let ns = |ms: f64| ms * 1e6 / points;
        println!(
            "{name:>10}  {:>8.1}  {:>8.1}  {:>8.1}  {:>8.1}",
            ns(plain_ms),
            each(sizes.0),
            ns(gzip_ms),
            each(sizes.1)
        );
    }
}
