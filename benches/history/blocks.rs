//! Blocks that promtool makes of OpenMetrics.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use promlet::model::{Labels, Timestamp};

use crate::data::{Data, INTERVAL_MS};
use crate::packages::prometheus;

/// The start of the samples in seconds, at which a block of two hours begins.
const START_S: i64 = 1_790_006_400;
/// The hours of a block.
const BLOCK_HOURS: usize = 2;
/// The scrapes of an hour.
const HOUR_ROUNDS: usize = 240;

/// A folder of blocks.
pub(crate) struct Blocks {
    pub(crate) folder: PathBuf,
    pub(crate) samples: u64,
    /// The first and the last time in seconds.
    pub(crate) start_s: i64,
    pub(crate) end_s: i64,
}

/// Returns the blocks of promtool with `hours` of about `series` series. They are made once, in the
/// target folder.
pub(crate) fn of_promtool(series: usize, hours: usize) -> Blocks {
    let rounds = hours * HOUR_ROUNDS;
    let last = i64::try_from(rounds - 1).expect("few rounds");
    let end_s = START_S + last * INTERVAL_MS / 1_000;
    let mut data = Data::new(series, rounds, Timestamp::from_s(end_s));
    let samples = (data.series() * rounds) as u64;
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("blocks-{series}-{hours}"));
    let (folder, ready) = (all.join("blocks"), all.join("ready"));
    if !ready.exists() {
        if all.exists() {
            fs::remove_dir_all(&all).expect("the target folder is ours");
        }
        fs::create_dir_all(&all).expect("the target folder is ours");
        let mut left = rounds;
        while left > 0 {
            let part = left.min(BLOCK_HOURS * HOUR_ROUNDS);
            create_block(&mut data, part, &all, &folder);
            left -= part;
        }
        fs::write(&ready, "").expect("the target folder is ours");
    }
    Blocks { folder, samples, start_s: START_S, end_s }
}

/// Adds the block of the next rounds. promtool reads the text once for each block, so each text has
/// the samples of one.
fn create_block(data: &mut Data, rounds: usize, dir: &Path, blocks: &Path) {
    let path = dir.join("samples.om");
    let mut text = BufWriter::with_capacity(1 << 20, File::create(&path).expect("a file"));
    for _ in 0..rounds {
        for (labels, samples) in data.round().expect("a round").into_iter().flatten() {
            for sample in samples {
                write_line(&mut text, &labels, sample.value, sample.at.as_s());
            }
        }
    }
    text.write_all(b"# EOF\n").and_then(|()| text.flush()).expect("written");
    let made = Command::new(prometheus().join("promtool"))
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&path, blocks])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(made.expect("promtool runs").success(), "promtool makes no block");
    fs::remove_file(&path).expect("our file");
}

fn write_line(out: &mut impl Write, labels: &Labels, value: f64, at_s: i64) {
    let name = labels.iter().find(|label| label.name == "__name__").expect("a name").value;
    let mut written = write!(out, "{name}");
    let others = labels.iter().filter(|label| label.name != "__name__");
    for (label, separator) in others.zip(std::iter::once('{').chain(std::iter::repeat(','))) {
        // No value has a character that needs an escape.
        written = written.and_then(|()| write!(out, "{separator}{}=\"{}\"", label.name, label.value));
    }
    written.and_then(|()| writeln!(out, "}} {value} {at_s}")).expect("written");
}
