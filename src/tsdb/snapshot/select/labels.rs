//! Label sets of matched series. The series of a family share one table with a row for each.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::matching::SeriesRow;
use crate::model::{LabelColumn, LabelTable, LabelValues, Labels, Pace, Stopped};
use crate::tsdb::report::SeriesId;
use crate::tsdb::series::columns::CodeColumn;
use crate::tsdb::series::table::{Dictionary, Table};
use crate::tsdb::snapshot::SelectedSeries;

/// The fewest series of a family that share a table. Fewer get separate label sets.
const TABLE_MIN: usize = 8;

/// The memory of a matched series without its labels, in bytes.
const SERIES_BYTES: usize = size_of::<SelectedSeries>() + size_of::<Option<Labels>>();
/// The memory of one differing label of one series: an index in a table and a share of the table.
const LABEL_BYTES: usize = 5;
/// The cost of one label of a series in a table.
const LABEL_UNITS: u64 = 4;
/// The cost of one label of a separate label set.
const LABEL_UNITS_ALONE: u64 = 20;

/// Returns the ranges of rows of each family. A family mostly has one range, but families of one
/// metric name may alternate.
pub(in crate::tsdb::snapshot) fn by_family(hits: &[SeriesRow<'_>]) -> Vec<Vec<Range<usize>>> {
    let mut families: Vec<Vec<Range<usize>>> = Vec::new();
    let mut known: RapidHashMap<usize, usize> = RapidHashMap::default();
    let mut from = 0;
    for alike in hits.chunk_by(|a, b| std::ptr::eq(a.family, b.family)) {
        let family = alike.first().map_or(0, |hit| std::ptr::from_ref(hit.family).addr());
        let place = *known.entry(family).or_insert(families.len());
        let run = from..from + alike.len();
        match families.get_mut(place) {
            Some(runs) => runs.push(run),
            None => families.push(vec![run]),
        }
        from += alike.len();
    }
    families
}

/// Returns series with the labels for which `keep` returns true. `hits` are sorted by labels.
///
/// # Errors
/// [`Stopped`] if the pace stops the request.
pub(in crate::tsdb::snapshot) fn with_labels(
    table: &Table,
    hits: &[SeriesRow<'_>],
    keep: &dyn Fn(&str) -> bool,
    pace: &Pace<'_>,
) -> Result<Vec<SelectedSeries>, Stopped> {
    pace.hold_each(hits.len(), SERIES_BYTES)?;
    let mut labels: Vec<Option<Labels>> = vec![None; hits.len()];
    let mut buffers = ColumnBuffers::default();
    for runs in by_family(hits) {
        let own: usize = runs.iter().map(Range::len).sum();
        let first = runs.first().and_then(|run| hits.get(run.start));
        let width = first.map_or(0, |hit| hit.family.names.len());
        let each =
            first.map_or(0, |hit| hit.family.columns.iter().filter(|one| one.same().is_none()).count());
        let units = if own < TABLE_MIN { LABEL_UNITS_ALONE } else { LABEL_UNITS };
        pace.spend_each(own.saturating_mul(width + 1), units)?;
        pace.hold_each(own.saturating_mul(each), LABEL_BYTES)?;
        let places = || runs.iter().cloned().flatten();
        let own: Vec<SeriesRow<'_>> = places().filter_map(|place| hits.get(place).copied()).collect();
        let mut put = |place: usize, made: Labels| {
            if let Some(slot) = labels.get_mut(place) {
                *slot = Some(made);
            }
        };
        match table_of(table, &own, &mut buffers) {
            Some(rows) => {
                let rows = Arc::new(rows);
                places().zip(Labels::of_table(&rows, keep)).for_each(|(place, made)| put(place, made));
            }
            None => places().zip(&own).for_each(|(place, hit)| {
                put(place, table.row_labels(hit.family, hit.row).filtered(keep));
            }),
        }
    }
    let found = hits.iter().zip(labels);
    let series = |(hit, labels): (&SeriesRow<'_>, Option<Labels>)| {
        Some(SelectedSeries { id: SeriesId(hit.id), labels: labels? })
    };
    Ok(found.filter_map(series).collect())
}

/// Returns a table of the label sets of some series of one family, in order. `None` if separate
/// label sets are better.
fn table_of(table: &Table, hits: &[SeriesRow<'_>], buffers: &mut ColumnBuffers) -> Option<LabelTable> {
    let family = hits.first().filter(|_| hits.len() >= TABLE_MIN)?.family;
    let mut columns = Vec::with_capacity(family.names.len());
    for (name, column) in family.names.iter().zip(&family.columns) {
        let values = table.values(*name)?;
        let values = match column {
            CodeColumn::Same(code) => LabelValues::Same(Arc::clone(values.text(*code)?)),
            CodeColumn::Each(codes) => buffers.values(values, hits.iter().map(|hit| codes.get(hit.row)))?,
        };
        columns.push(LabelColumn { name: Arc::clone(table.names.text(*name)?), values });
    }
    LabelTable::new(columns, hits.len(), true)
}

/// Buffers that are reused for each column.
#[derive(Default)]
struct ColumnBuffers {
    /// The index of each code's text plus 1.
    places: Vec<u32>,
    sparse: RapidHashMap<u32, u32>,
}

impl ColumnBuffers {
    fn values(
        &mut self,
        values: &Dictionary,
        codes: impl ExactSizeIterator<Item = Option<u32>>,
    ) -> Option<LabelValues> {
        let mut texts: Vec<Arc<str>> = Vec::new();
        let mut places = Vec::with_capacity(codes.len());
        // A dense table is the fastest unless it has many more codes than series.
        let dense = values.len() <= codes.len().saturating_mul(4);
        self.places.clear();
        self.sparse.clear();
        if dense {
            self.places.resize(values.len(), 0);
        }
        for code in codes {
            let code = code?;
            let place = if dense {
                self.places.get_mut(code as usize)?
            } else {
                self.sparse.entry(code).or_default()
            };
            if *place == 0 {
                texts.push(Arc::clone(values.text(code)?));
                *place = u32::try_from(texts.len()).ok()?;
            }
            places.push(*place - 1);
        }
        Some(LabelValues::Each { texts, places })
    }
}
