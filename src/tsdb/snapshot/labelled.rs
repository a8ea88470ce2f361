//! The labels of series that were found: a table for each family, of which every series has a row.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::SelectedSeries;
use super::find::Hit;
use crate::model::{LabelColumn, LabelTable, LabelValues, Labels, Pace, Stopped};
use crate::tsdb::report::SeriesId;
use crate::tsdb::series::columns::Column;
use crate::tsdb::series::table::{Dictionary, Table};

/// Fewer series of a family get label sets of their own.
const TABLE_MIN: usize = 8;

/// Memory of a series that was found, without what its labels take.
const SERIES_BYTES: usize = size_of::<SelectedSeries>() + size_of::<Option<Labels>>();
/// Memory of one label of one series that differs among them: a place in a table and a share of it.
const LABEL_BYTES: usize = 5;
/// Work for one label of one series of many.
const LABEL_UNITS: u64 = 4;
/// Work for one label of a series whose label set is made by itself.
const LABEL_UNITS_ALONE: u64 = 20;

/// Where each family's hits are: mostly neighbours, but those of one metric name may be among one another.
pub(super) fn by_family(hits: &[Hit<'_>]) -> Vec<Vec<Range<usize>>> {
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

/// Hits, which are in the order of their labels, with those labels that are to be kept.
///
/// # Errors
/// [`Stopped`].
pub(super) fn labelled(
    table: &Table,
    hits: &[Hit<'_>],
    keep: &dyn Fn(&str) -> bool,
    pace: &Pace<'_>,
) -> Result<Vec<SelectedSeries>, Stopped> {
    pace.hold_each(hits.len(), SERIES_BYTES)?;
    let mut labels: Vec<Option<Labels>> = vec![None; hits.len()];
    let mut room = Room::default();
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
        let own: Vec<Hit<'_>> = places().filter_map(|place| hits.get(place).copied()).collect();
        let mut put = |place: usize, made: Labels| {
            if let Some(slot) = labels.get_mut(place) {
                *slot = Some(made);
            }
        };
        match table_of(table, &own, &mut room) {
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
    let series = |(hit, labels): (&Hit<'_>, Option<Labels>)| {
        Some(SelectedSeries { id: SeriesId(hit.id), labels: labels? })
    };
    Ok(found.filter_map(series).collect())
}

/// The label sets of some series of one family, in order; none where they are better made one by one.
fn table_of(table: &Table, hits: &[Hit<'_>], room: &mut Room) -> Option<LabelTable> {
    let family = hits.first().filter(|_| hits.len() >= TABLE_MIN)?.family;
    let mut columns = Vec::with_capacity(family.names.len());
    for (name, column) in family.names.iter().zip(&family.columns) {
        let values = table.values(*name)?;
        let values = match column {
            Column::Same(code) => LabelValues::Same(Arc::clone(values.text(*code)?)),
            Column::Each(codes) => room.values(values, hits.iter().map(|hit| codes.get(hit.row)))?,
        };
        columns.push(LabelColumn { name: Arc::clone(table.names.text(*name)?), values });
    }
    LabelTable::new(columns, hits.len(), true)
}

/// What is used again for each column.
#[derive(Default)]
struct Room {
    /// By code: one more than the place of its text.
    places: Vec<u32>,
    sparse: RapidHashMap<u32, u32>,
}

impl Room {
    fn values(
        &mut self,
        values: &Dictionary,
        codes: impl ExactSizeIterator<Item = Option<u32>>,
    ) -> Option<LabelValues> {
        let mut texts: Vec<Arc<str>> = Vec::new();
        let mut places = Vec::with_capacity(codes.len());
        // A table of all codes is the fastest where there are not many more of them than series.
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
