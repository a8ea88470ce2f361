//! `load_with_nhcb`: the classic histograms of a load are also stored as native ones with custom
//! buckets.

use std::collections::BTreeMap;

use promlet::model::{Labels, METRIC_NAME};

use super::native::Literal;
use super::series::{Item, SeriesLine};

/// The samples of one classic histogram at one time.
#[derive(Default)]
struct ClassicSample {
    /// Upper bounds with their cumulative counts.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: Option<f64>,
}

/// Returns the native histograms made from the classic ones among `series`.
pub(crate) fn native_from_classic(series: &BTreeMap<Labels, SeriesLine>) -> Result<Vec<SeriesLine>, String> {
    let mut found: BTreeMap<Labels, BTreeMap<usize, ClassicSample>> = BTreeMap::new();
    for line in series.values() {
        let name = line.labels.metric_name();
        let parts =
            ["_bucket", "_count", "_sum"].into_iter().find_map(|end| Some((name.strip_suffix(end)?, end)));
        let Some((base, part)) = parts else { continue };
        let le = line.labels.value("le").parse::<f64>().ok().filter(|le| !le.is_nan());
        if part == "_bucket" && le.is_none() {
            continue;
        }
        let mut builder = line.labels.filtered(|name| name != "le").to_builder();
        builder.set(METRIC_NAME, base);
        let by_position = found.entry(builder.build()).or_default();
        for (position, item) in line.items.iter().enumerate() {
            let Item::Value(value) = item else { continue };
            let sample = by_position.entry(position).or_default();
            match (part, le) {
                ("_bucket", Some(le)) => {
                    if sample.buckets.iter().all(|(have, _)| *have != le) {
                        sample.buckets.push((le, *value));
                    }
                }
                ("_count", _) => sample.count = Some(*value),
                _ => sample.sum = Some(*value),
            }
        }
    }
    let mut lines = Vec::new();
    for (labels, by_position) in found {
        let mut items = Vec::new();
        for (position, sample) in by_position {
            let Some(literal) = sample.native()? else { continue };
            items.resize_with(position, || Item::Missing);
            items.push(Item::Histogram(Box::new(literal)));
        }
        lines.push(SeriesLine { labels, items, starts: Vec::new() });
    }
    Ok(lines)
}

impl ClassicSample {
    fn native(mut self) -> Result<Option<Literal>, String> {
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let highest = self.buckets.last().copied();
        let Some(count) = self.count.or(highest.map(|(_, count)| count)) else { return Ok(None) };
        match highest {
            Some((bound, all)) if bound == f64::INFINITY => {
                if all != count {
                    return Err(format!("the last bucket counts {all} of {count}"));
                }
            }
            _ => self.buckets.push((f64::INFINITY, count)),
        }
        Literal::from_classic(&self.buckets, self.sum.unwrap_or(0.0)).map(Some)
    }
}
