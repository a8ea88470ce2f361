//! `load_with_nhcb`: classic histograms of a load, once more as native ones with custom buckets.

use std::collections::BTreeMap;

use promlet::model::{Labels, METRIC_NAME};

use super::native::Literal;
use super::series::{Item, SeriesLine};

/// What one classic histogram has at one time.
#[derive(Default)]
struct Moment {
    /// Bounds as bits that sort as they do, and cumulative counts.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: Option<f64>,
}

/// The native histograms made of the classic ones among `series`.
pub(crate) fn made_native(series: &BTreeMap<Labels, SeriesLine>) -> Result<Vec<SeriesLine>, String> {
    let mut found: BTreeMap<Labels, BTreeMap<usize, Moment>> = BTreeMap::new();
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
        let moments = found.entry(builder.build()).or_default();
        for (place, item) in line.items.iter().enumerate() {
            let Item::Value(value) = item else { continue };
            let moment = moments.entry(place).or_default();
            match (part, le) {
                ("_bucket", Some(le)) => {
                    if moment.buckets.iter().all(|(have, _)| *have != le) {
                        moment.buckets.push((le, *value));
                    }
                }
                ("_count", _) => moment.count = Some(*value),
                _ => moment.sum = Some(*value),
            }
        }
    }
    let mut lines = Vec::new();
    for (labels, moments) in found {
        let mut items = Vec::new();
        for (place, moment) in moments {
            let Some(literal) = moment.native()? else { continue };
            items.resize_with(place, || Item::Missing);
            items.push(Item::Histogram(Box::new(literal)));
        }
        lines.push(SeriesLine { labels, items, starts: Vec::new() });
    }
    Ok(lines)
}

impl Moment {
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
