//! A body of definitions, transposed: series grouped by metric name and set of label names, with a
//! column for each label. A start reads the registry in this form without the table and its lock.
//! [`super::table::load`] adds the groups to the table.

use std::collections::HashMap;

use super::definition::Body;
use crate::model::METRIC_NAME;
use crate::tsdb::error::Damage;

/// A body of definitions by columns. Numbers refer to its texts. The buffers are reused for the
/// next body.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct DefinitionColumns {
    joined: String,
    /// The end of each text in `joined`.
    ends: Vec<usize>,
    shapes: Vec<Vec<u32>>,
    groups: Vec<ColumnGroup>,
    ids: Vec<u32>,
    cells: Vec<u32>,
    buffers: TransposeBuffers,
}

/// The series of a body with one metric name and one set of label names.
#[derive(Debug)]
struct ColumnGroup {
    shape: usize,
    /// The index of the label that is the metric name.
    metric: Option<usize>,
    /// The index of its first row.
    first: usize,
    /// The number of its rows.
    rows: usize,
    /// The number of rows that are already copied to the columns.
    put: usize,
    /// The index of its first cell.
    cells: usize,
}

/// Buffers between reading the rows and copying them to columns.
#[derive(Debug, Default)]
struct TransposeBuffers {
    rows: Vec<PendingRow>,
    values: Vec<u32>,
    /// The last shape and group of each metric name. Few metrics have two sets of label names in
    /// one body.
    last: Vec<Option<(usize, usize)>>,
    all: HashMap<(usize, Option<u32>), usize>,
}

#[derive(Clone, Copy, Debug)]
struct PendingRow {
    id: u32,
    group: usize,
    /// The index of its first value.
    values: usize,
}

/// A group of series with its columns, as the table takes them.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct GroupColumns<'s> {
    /// Label names, ascending.
    pub(in crate::tsdb) names: &'s [u32],
    /// The index of the metric name in `names`.
    pub(in crate::tsdb) metric: Option<usize>,
    /// Series ids, ascending. The table detects repeated ids.
    pub(in crate::tsdb) ids: &'s [u32],
    /// The values of all rows, name by name.
    pub(in crate::tsdb) cells: &'s mut [u32],
}

/// The texts of a body.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct BodyTexts<'s> {
    joined: &'s str,
    ends: &'s [usize],
}

impl BodyTexts<'_> {
    pub(in crate::tsdb) fn len(self) -> usize {
        self.ends.len()
    }

    /// Returns a text by its number, or the empty text if there is none.
    pub(in crate::tsdb) fn get(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(number).copied().unwrap_or(start);
        self.joined.get(start..end).unwrap_or_default()
    }
}

impl DefinitionColumns {
    /// Reads a body, which replaces the current one.
    ///
    /// # Errors
    /// [`Damage`] if the body is invalid.
    pub(in crate::tsdb) fn read(&mut self, body: &[u8]) -> Result<(), Damage> {
        let mut body = Body::open(body)?;
        self.joined.clear();
        self.ends.clear();
        for text in &body.texts {
            self.joined.push_str(text);
            self.ends.push(self.joined.len());
        }
        self.read_rows(&mut body)?;
        self.shapes = body.shapes;
        if !self.buffers.rows.is_sorted_by_key(|row| row.id) {
            // The log has the records of concurrent requests in the order in which these finished.
            self.buffers.rows.sort_unstable_by_key(|row| row.id);
        }
        self.transpose();
        Ok(())
    }

    /// Reads all rows, and assigns each to a group.
    fn read_rows(&mut self, body: &mut Body<'_>) -> Result<(), Damage> {
        let TransposeBuffers { rows, values, last, all } = &mut self.buffers;
        rows.clear();
        values.clear();
        last.clear();
        last.resize(body.texts.len(), None);
        all.clear();
        self.groups.clear();
        let text = |number: &u32| body.texts.get(*number as usize).copied().unwrap_or_default();
        let metric = |shape: &Vec<u32>| shape.iter().position(|number| text(number) == METRIC_NAME);
        let metrics: Vec<Option<usize>> = body.shapes.iter().map(metric).collect();
        let mut start = 0;
        while let Some((id, shape)) = body.next(values)? {
            let metric = metrics.get(shape).copied().flatten();
            let value = metric.and_then(|place| values.get(start + place).copied());
            let mut known = value.and_then(|value| last.get_mut(value as usize));
            let group = match known.as_deref() {
                Some(Some((have, group))) if *have == shape => *group,
                _ => *all.entry((shape, value)).or_insert(self.groups.len()),
            };
            if let Some(known) = known.as_mut() {
                **known = Some((shape, group));
            }
            if group == self.groups.len() {
                self.groups.push(ColumnGroup { shape, metric, first: 0, rows: 0, put: 0, cells: 0 });
            }
            if let Some(group) = self.groups.get_mut(group) {
                group.rows += 1;
            }
            rows.push(PendingRow { id, group, values: start });
            start = values.len();
        }
        Ok(())
    }

    /// Copies the rows to the columns of their groups.
    fn transpose(&mut self) {
        let TransposeBuffers { rows, values, .. } = &self.buffers;
        let (mut first, mut cells) = (0, 0);
        for group in &mut self.groups {
            (group.first, group.cells) = (first, cells);
            first += group.rows;
            cells += group.rows * self.shapes.get(group.shape).map_or(0, Vec::len);
        }
        self.ids.clear();
        self.ids.resize(rows.len(), 0);
        self.cells.clear();
        self.cells.resize(cells, 0);
        for row in rows {
            let Some(group) = self.groups.get_mut(row.group) else { continue };
            let width = self.shapes.get(group.shape).map_or(0, Vec::len);
            if let Some(id) = self.ids.get_mut(group.first + group.put) {
                *id = row.id;
            }
            let cells = self.cells.get_mut(group.cells + group.put..).unwrap_or_default();
            let values = values.get(row.values..row.values + width).unwrap_or_default();
            for (cell, value) in cells.iter_mut().step_by(group.rows).zip(values) {
                *cell = *value;
            }
            group.put += 1;
        }
    }

    /// Returns the texts, and an iterator over the groups.
    pub(in crate::tsdb) fn groups(&mut self) -> (BodyTexts<'_>, impl Iterator<Item = GroupColumns<'_>>) {
        let DefinitionColumns { joined, ends, shapes, groups, ids, cells, .. } = self;
        let (shapes, mut ids, mut cells) = (shapes.as_slice(), ids.as_slice(), cells.as_mut_slice());
        let next = move |group: &ColumnGroup| {
            let names = shapes.get(group.shape)?.as_slice();
            let own = ids.split_off(..group.rows)?;
            let cells = cells.split_off_mut(..group.rows * names.len())?;
            Some(GroupColumns { names, metric: group.metric, ids: own, cells })
        };
        (BodyTexts { joined, ends }, groups.iter().map_while(next))
    }

    /// Returns the greatest id of the body.
    pub(in crate::tsdb) fn greatest_id(&self) -> Option<u32> {
        self.buffers.rows.last().map(|row| row.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tsdb::series::definition::Definitions;

    #[test]
    fn rows_of_one_metric_and_shape_are_grouped_in_order_of_their_ids() {
        let mut body = Definitions::default();
        let mut add = |id, pairs: &[(&'static str, &'static str)]| body.add(id, pairs.iter().copied());
        add(5, &[("__name__", "up"), ("job", "a")]);
        add(9, &[("__name__", "down"), ("job", "a")]);
        add(3, &[("__name__", "up"), ("job", "b")]);
        add(4, &[("__name__", "up"), ("zone", "b")]);
        add(7, &[("job", "up")]);
        add(8, &[]);
        let mut columns = DefinitionColumns::default();
        // The second body checks that nothing of the first one is left.
        for body in [body.finish(), Definitions::default().finish()] {
            columns.read(&body).unwrap();
            let greatest = columns.greatest_id();
            let (texts, groups) = columns.groups();
            let actual: Vec<_> = groups
                .map(|group| {
                    let actual = |numbers: &[u32]| numbers.iter().map(|n| texts.get(*n)).collect::<Vec<_>>();
                    (actual(group.names), group.metric, group.ids.to_vec(), actual(group.cells))
                })
                .collect();
            if greatest.is_none() {
                assert_eq!((actual.len(), texts.len()), (0, 0));
                continue;
            }
            assert_eq!(
                actual,
                [
                    (vec!["__name__", "job"], Some(0), vec![3, 5], vec!["up", "up", "b", "a"]),
                    (vec!["__name__", "job"], Some(0), vec![9], vec!["down", "a"]),
                    (vec!["__name__", "zone"], Some(0), vec![4], vec!["up", "b"]),
                    (vec!["job"], None, vec![7], vec!["up"]),
                    (vec![], None, vec![8], vec![]),
                ]
            );
            assert_eq!((greatest, texts.len(), texts.get(999)), (Some(9), 7, ""));
        }
        assert!(columns.read(&[1]).is_err());
    }
}
