//! A body of definitions, turned: the series of each metric name and set of label names together, a column for each
//! label. What a start reads the registry as, away from the table and its lock; rows of one body are found here, and what
//! they mean for the table in [`super::table::load`].

use std::collections::HashMap;

use super::definition::Body;
use crate::model::METRIC_NAME;
use crate::tsdb::error::Damage;

/// A body of definitions by columns. Numbers are of its texts. Its memory is used again for the next body.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Sheet {
    joined: String,
    /// Where each text ends.
    ends: Vec<usize>,
    shapes: Vec<Vec<u32>>,
    groups: Vec<Group>,
    ids: Vec<u32>,
    cells: Vec<u32>,
    turning: Turning,
}

/// The series of a body with one metric name and one set of label names.
#[derive(Debug)]
struct Group {
    shape: usize,
    /// Which label is the metric name.
    metric: Option<usize>,
    /// Its rows: first, how many, and how many are put there.
    first: usize,
    rows: usize,
    put: usize,
    /// Where its first column is.
    cells: usize,
}

/// What is needed between reading the rows and putting them into columns.
#[derive(Debug, Default)]
struct Turning {
    rows: Vec<Row>,
    values: Vec<u32>,
    /// By the value that is the metric name: shape and group. Hardly a metric has two sets of label names in one body.
    last: Vec<Option<(usize, usize)>>,
    all: HashMap<(usize, Option<u32>), usize>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    id: u32,
    group: usize,
    /// Where its values begin.
    values: usize,
}

/// The series of a body with one metric name and one set of label names, as the table takes them.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Columns<'s> {
    /// Label names, ascending.
    pub(in crate::tsdb) names: &'s [u32],
    /// Which of them is the metric name.
    pub(in crate::tsdb) metric: Option<usize>,
    /// Ascending; whether one is there twice is for the table to see.
    pub(in crate::tsdb) ids: &'s [u32],
    /// The values of all rows, name by name.
    pub(in crate::tsdb) cells: &'s mut [u32],
}

/// The texts of a sheet.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Texts<'s> {
    joined: &'s str,
    ends: &'s [usize],
}

impl Texts<'_> {
    pub(in crate::tsdb) fn len(self) -> usize {
        self.ends.len()
    }

    /// A text by its number.
    pub(in crate::tsdb) fn get(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(number).copied().unwrap_or(start);
        self.joined.get(start..end).unwrap_or_default()
    }
}

impl Sheet {
    /// Reads a body, in place of what was read before.
    ///
    /// # Errors
    /// [`Damage`] where it is none.
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
        if !self.turning.rows.is_sorted_by_key(|row| row.id) {
            // Records of requests that came together stand in the log as they finished.
            self.turning.rows.sort_unstable_by_key(|row| row.id);
        }
        self.turn();
        Ok(())
    }

    /// Reads all rows and gives each its group.
    fn read_rows(&mut self, body: &mut Body<'_>) -> Result<(), Damage> {
        let Turning { rows, values, last, all } = &mut self.turning;
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
                self.groups.push(Group { shape, metric, first: 0, rows: 0, put: 0, cells: 0 });
            }
            if let Some(group) = self.groups.get_mut(group) {
                group.rows += 1;
            }
            rows.push(Row { id, group, values: start });
            start = values.len();
        }
        Ok(())
    }

    /// Puts the rows into the columns of their groups.
    fn turn(&mut self) {
        let Turning { rows, values, .. } = &self.turning;
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

    /// The texts, and the groups in turn.
    pub(in crate::tsdb) fn groups(&mut self) -> (Texts<'_>, impl Iterator<Item = Columns<'_>>) {
        let Sheet { joined, ends, shapes, groups, ids, cells, .. } = self;
        let (shapes, mut ids, mut cells) = (shapes.as_slice(), ids.as_slice(), cells.as_mut_slice());
        let next = move |group: &Group| {
            let names = shapes.get(group.shape)?.as_slice();
            let own = ids.split_off(..group.rows)?;
            let cells = cells.split_off_mut(..group.rows * names.len())?;
            Some(Columns { names, metric: group.metric, ids: own, cells })
        };
        (Texts { joined, ends }, groups.iter().map_while(next))
    }

    /// The greatest id in it.
    pub(in crate::tsdb) fn greatest_id(&self) -> Option<u32> {
        self.turning.rows.last().map(|row| row.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tsdb::series::definition::Definitions;

    #[test]
    fn rows_of_one_metric_and_shape_stand_together_in_order_of_their_ids() {
        let mut body = Definitions::default();
        let mut add = |id, pairs: &[(&'static str, &'static str)]| body.add(id, pairs.iter().copied());
        add(5, &[("__name__", "up"), ("job", "a")]);
        add(9, &[("__name__", "down"), ("job", "a")]);
        add(3, &[("__name__", "up"), ("job", "b")]);
        add(4, &[("__name__", "up"), ("zone", "b")]);
        add(7, &[("job", "up")]);
        add(8, &[]);
        let mut sheet = Sheet::default();
        // Nothing of what was read before is left.
        for body in [body.finish(), Definitions::default().finish()] {
            sheet.read(&body).unwrap();
            let greatest = sheet.greatest_id();
            let (texts, groups) = sheet.groups();
            let told: Vec<_> = groups
                .map(|group| {
                    let told = |numbers: &[u32]| numbers.iter().map(|n| texts.get(*n)).collect::<Vec<_>>();
                    (told(group.names), group.metric, group.ids.to_vec(), told(group.cells))
                })
                .collect();
            if greatest.is_none() {
                assert_eq!((told.len(), texts.len()), (0, 0));
                continue;
            }
            assert_eq!(
                told,
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
        assert!(sheet.read(&[1]).is_err());
    }
}
