//! Sealed blocks compared with the head's mini-blocks: `cargo bench --bench segment`.
//!
//! Data: series as monitored machines send them, 144,000 samples each, at 15 s. Printed for both on
//! the same samples: nanoseconds per sample to encode and decode times and values, with the
//! checksums of sealed blocks verified; bytes per sample with times, and without them where all
//! series of a target share times. Best of five. Both codecs are private, so this bench compiles
//! them itself.

use std::hint::black_box;

use promlet::clock::Stopwatch;
use promlet::model;

#[path = "../src/tsdb/segment/block/mod.rs"]
#[expect(dead_code, reason = "parts of blocks and headers are not measured")]
mod block;
#[path = "../src/tsdb/codec.rs"]
#[expect(dead_code, reason = "the log and the registry read more kinds of pieces")]
#[cfg_attr(test, expect(unused_imports, reason = "a bench runs no tests"))]
mod codec;
#[path = "../src/tsdb/chunk/mod.rs"]
#[expect(dead_code, reason = "the head also encodes by parts")]
mod mini;

#[path = "../src/simd.rs"]
#[expect(dead_code, unreachable_pub, reason = "nothing is compared with the scalar code")]
#[cfg_attr(test, expect(unused_imports, reason = "a bench runs no tests"))]
mod simd;

/// The modules that the codecs import.
mod tsdb {
    pub(crate) use crate::codec;
    pub(crate) use crate::error;
}

/// The same type as in `tsdb::error`.
mod error {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Damage {
        pub(crate) offset: u64,
        pub(crate) what: &'static str,
    }

    impl Damage {
        pub(crate) fn new(offset: usize, what: &'static str) -> Damage {
            Damage { offset: offset as u64, what }
        }
    }
}

const SAMPLES: usize = 144_000;
const STEP: i64 = 15_000;
const START: i64 = 1_795_000_000_123;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a random number around 0, mostly within 1.
    fn about(&mut self) -> f64 {
        (self.unit() + self.unit() + self.unit() + self.unit() - 2.0) * 1.7
    }
}

fn rounded(value: f64, decimals: i32) -> f64 {
    let power = 10f64.powi(decimals);
    (value * power).round() / power
}

/// A kind of series: its name, and its next value from the previous one.
type SeriesKind = (&'static str, fn(f64, &mut Random) -> f64);

const KINDS: [SeriesKind; 12] = [
    ("constant", |_, _| 1.0),
    ("rarely moving", |before, random| before + f64::from(u8::from(random.unit() < 0.01))),
    ("counter, steady", |before, _| before + 15.0),
    ("counter, small", |before, random| before + (8.0 + 3.0 * random.about()).round().max(0.0)),
    ("counter, bytes", |before, random| before + (3e6 * (1.0 + 0.15 * random.about())).round().max(0.0)),
    ("seconds, 2 decimals", |before, random| {
        rounded(before + rounded(3.0 * (1.0 + 0.2 * random.about()), 2).max(0.0), 2)
    }),
    ("gauge, integers", |before, random| (before + 12.0 * random.about()).round().clamp(0.0, 900.0)),
    ("gauge, 1 decimal", |before, random| rounded(before + random.about(), 1).clamp(0.0, 90.0)),
    ("gauge, 9 decimals", |before, random| rounded(before + 1e-3 * random.about(), 9).clamp(0.0, 1.0)),
    ("memory, pages", |before, random| {
        let moved = if random.unit() < 0.7 { 300.0 * random.about() } else { 0.0 };
        ((before / 4_096.0 + moved).round() * 4_096.0).clamp(0.0, 6e9)
    }),
    ("sum of floats", |before, random| before + 0.02 * (1.0 + 0.1 * random.about())),
    ("random doubles", |_, random| random.unit()),
];

fn series((_, next): SeriesKind) -> Vec<u64> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut value = 0.0;
    let mut step = |_| {
        value = next(value, &mut random);
        value.to_bits()
    };
    (0..SAMPLES).map(&mut step).collect()
}

/// Returns nanoseconds per sample, the best of five runs.
fn best(mut run: impl FnMut()) -> f64 {
    let mut once = || {
        let watch = Stopwatch::start();
        run();
        watch.elapsed().as_nanos() as f64 / SAMPLES as f64
    };
    (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
}

#[derive(Clone, Copy, Default)]
struct Figures {
    encode: f64,
    decode: f64,
    times: f64,
    values: f64,
}

fn sealed(times: &[i64], values: &[u64], samples: usize) -> Figures {
    let blocks = || times.chunks(samples).zip(values.chunks(samples));
    let (mut data, mut times_data) = (Vec::new(), Vec::new());
    let mut ends = Vec::new();
    let mut codec = block::ValueEncoder::default();
    let encode = best(|| {
        (data, times_data) = (Vec::new(), Vec::new());
        ends.clear();
        for (times, values) in blocks() {
            block::put_times(&mut times_data, times);
            codec.put_values(&mut data, 7, values);
            ends.push((times_data.len(), data.len()));
        }
    });
    let (mut times_back, mut values_back) = (Vec::new(), Vec::new());
    let mut read = |check: bool| {
        let mut at = (0, 0);
        for ((times, values), end) in blocks().zip(&ends) {
            times_back.clear();
            values_back.clear();
            block::times_of(&times_data[at.0..end.0], &mut times_back).expect("a time block");
            let count = times_back.len();
            block::values_within(&data[at.1..end.1], 7, count, 0..count, &mut values_back)
                .expect("a value block");
            if check {
                assert_eq!(times_back, times);
                assert!(values_back.iter().map(|value| value.to_bits()).eq(values.iter().copied()));
            }
            black_box((&times_back, &values_back));
            at = *end;
        }
    };
    read(true);
    let decode = best(|| read(false));
    let each = |bytes: usize| bytes as f64 / SAMPLES as f64;
    Figures { encode, decode, times: each(times_data.len()), values: each(data.len()) }
}

fn minis(times: &[i64], values: &[u64], samples: usize) -> Figures {
    let mut chunks = Vec::new();
    let encode = best(|| {
        chunks.clear();
        for (times, values) in times.chunks(samples).zip(values.chunks(samples)) {
            chunks.push(mini::encode(times, values));
        }
    });
    let (mut times_back, mut values_back) = (Vec::new(), Vec::new());
    let decode = best(|| {
        for chunk in &chunks {
            times_back.clear();
            values_back.clear();
            let mut minis = mini::decode(chunk);
            while let Some(mini) = minis.next().expect("a chunk") {
                times_back.extend_from_slice(mini.times());
                values_back.extend(mini.values().iter().map(|bits| f64::from_bits(*bits)));
            }
            black_box((&times_back, &values_back));
        }
    });
    let bytes: usize = chunks.iter().map(Vec::len).sum();
    Figures { encode, decode, times: 0.0, values: bytes as f64 / SAMPLES as f64 }
}

fn print_row(what: &str, ours: Figures, minis: Figures) {
    println!(
        "{:>6.2} {:>6.1} {:>7.3} {:>7.3}   {:>6.2} {:>6.1} {:>7.3}   {:>5.2} {:>5.2} {:>5.2}  {what}",
        ours.decode,
        ours.encode,
        ours.values + ours.times,
        ours.values,
        minis.decode,
        minis.encode,
        minis.values,
        minis.decode / ours.decode,
        minis.encode / ours.encode,
        minis.values / (ours.values + ours.times),
    );
}

fn main() {
    let mut random = Random(7);
    let regular: Vec<i64> = (0..SAMPLES as i64).map(|index| START + index * STEP).collect();
    let mut moved = |by: u64| -> Vec<i64> {
        regular.iter().map(|time| time + i64::try_from(random.next() % by).expect("small")).collect()
    };
    let (jittered, irregular) = (moved(5), moved(9_000));
    for samples in [120, 720] {
        println!("\nblocks of {samples}");
        println!("{:^29}   {:^21}   {:^17}", "sealed", "mini-blocks", "mini-blocks/sealed");
        println!("decode encode   bytes  shared   decode encode   bytes   dec.  enc. bytes  series");
        let mut sum = (Figures::default(), Figures::default());
        for kind in KINDS {
            let values = series(kind);
            let figures = (sealed(&regular, &values, samples), minis(&regular, &values, samples));
            print_row(kind.0, figures.0, figures.1);
            let add = |sum: &mut Figures, one: Figures| {
                sum.decode += one.decode / KINDS.len() as f64;
                sum.encode += one.encode / KINDS.len() as f64;
                sum.times += one.times / KINDS.len() as f64;
                sum.values += one.values / KINDS.len() as f64;
            };
            add(&mut sum.0, figures.0);
            add(&mut sum.1, figures.1);
        }
        print_row("mean of these", sum.0, sum.1);
        let counter = series(KINDS[4]);
        for (what, times) in
            [("counter, bytes; 2 ms jitter", &jittered), ("counter, bytes; irregular", &irregular)]
        {
            print_row(what, sealed(times, &counter, samples), minis(times, &counter, samples));
        }
    }
}
