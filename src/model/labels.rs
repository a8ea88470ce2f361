//! Label sets, which identify series: sorted, unique names with non-empty values.

mod table;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use table::{LabelColumn, LabelMask, LabelTable, LabelValues};
use table::{MaskColumns, RowIter};

/// The label with the metric name.
pub const METRIC_NAME: &str = "__name__";

/// A label. Name and value are shared with the interner of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Name; never empty.
    pub name: Arc<str>,
    /// Value; never empty inside [`Labels`], where an empty value is an absent label.
    pub value: Arc<str>,
}

/// A borrowed label of a label set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelRef<'a> {
    /// Name; never empty.
    pub name: &'a str,
    /// Value; never empty.
    pub value: &'a str,
}

/// A label set: sorted by name, without duplicate names and empty values. Clones are cheap: they
/// share the labels, or refer to a row of a [`LabelTable`].
///
/// The order is that of Prometheus' `labels.Compare`: label by label, name before value, a proper
/// prefix first.
#[derive(Clone)]
pub struct Labels(LabelStorage);

#[derive(Clone)]
enum LabelStorage {
    Own(Arc<[Label]>),
    /// A row of a table, restricted to the columns in the mask.
    Row(Arc<LabelTable>, u32, LabelMask),
}

impl Default for Labels {
    fn default() -> Labels {
        Labels(LabelStorage::Own(Arc::from([])))
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Labels) -> bool {
        match (&self.0, &other.0) {
            (LabelStorage::Row(table, a, mask), LabelStorage::Row(others, b, other_mask))
                if Arc::ptr_eq(table, others) && mask == other_mask =>
            {
                table.is_same(*a, *b, *mask)
            }
            _ => self.len() == other.len() && self.cmp(other).is_eq(),
        }
    }
}

impl Eq for Labels {}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        for label in self {
            label.name.hash(state);
            label.value.hash(state);
        }
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Labels) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    fn cmp(&self, other: &Labels) -> Ordering {
        if let (LabelStorage::Row(table, a, mask), LabelStorage::Row(others, b, other_mask)) =
            (&self.0, &other.0)
            && Arc::ptr_eq(table, others)
            && mask == other_mask
        {
            return table.compare(*a, *b, *mask);
        }
        // Texts are interned, so equal ones usually have the same address and need not be compared.
        let text = |a: &str, b: &str| if std::ptr::eq(a, b) { Ordering::Equal } else { a.cmp(b) };
        let pairs = self.iter().zip(other);
        let mut compared = pairs.map(|(a, b)| text(a.name, b.name).then_with(|| text(a.value, b.value)));
        compared.find(|order| order.is_ne()).unwrap_or_else(|| self.len().cmp(&other.len()))
    }
}

impl std::fmt::Debug for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl Labels {
    /// Builds a label set from pairs in any order. Empty values are dropped; of duplicate names the
    /// last one wins.
    pub fn from_pairs<N: Into<Arc<str>>, V: Into<Arc<str>>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Labels {
        let mut builder = LabelsBuilder::default();
        for (name, value) in pairs {
            builder.set(name, value);
        }
        builder.build()
    }

    /// Builds a label set from labels that are already sorted, unique and non-empty.
    pub fn from_sorted(labels: Vec<Label>) -> Labels {
        debug_assert!(labels.windows(2).all(|pair| pair[0].name < pair[1].name), "sorted and unique");
        debug_assert!(labels.iter().all(|label| !label.value.is_empty()), "no empty values");
        Labels(LabelStorage::Own(labels.into()))
    }

    /// Returns the label sets of a table, row by row, with the labels for which `keep` returns
    /// true.
    pub fn of_table(table: &Arc<LabelTable>, keep: impl FnMut(&str) -> bool) -> impl Iterator<Item = Labels> {
        let mask = table.mask(keep);
        (0u32..)
            .zip(0..table.rows())
            .map(move |(row, _)| Labels(LabelStorage::Row(Arc::clone(table), row, mask)))
    }

    /// Returns the labels of a table's row, restricted to the columns in the mask.
    pub fn of_row(table: &Arc<LabelTable>, row: u32, mask: LabelMask) -> Labels {
        Labels(LabelStorage::Row(Arc::clone(table), row, mask))
    }

    /// Returns the table, row and columns, if it is a row of a table.
    pub fn row(&self) -> Option<(&Arc<LabelTable>, u32, LabelMask)> {
        match &self.0 {
            LabelStorage::Own(_) => None,
            LabelStorage::Row(table, row, mask) => Some((table, *row, *mask)),
        }
    }

    /// Returns the heap memory of label sets: their own labels, and each of their tables once.
    pub fn bytes_behind<'l>(all: impl IntoIterator<Item = &'l Labels>) -> usize {
        let mut tables = std::collections::HashSet::new();
        let (mut bytes, mut last) = (0, std::ptr::null());
        for labels in all {
            match &labels.0 {
                LabelStorage::Own(labels) => bytes += Labels::own_bytes(labels.len()),
                LabelStorage::Row(table, ..) if Arc::as_ptr(table) == last => {}
                LabelStorage::Row(table, ..) => {
                    last = Arc::as_ptr(table);
                    if tables.insert(last) {
                        bytes += table.bytes();
                    }
                }
            }
        }
        bytes
    }

    /// Returns the heap memory of an own label set: the counters of the `Arc` and `labels` labels.
    pub const fn own_bytes(labels: usize) -> usize {
        16 + labels * size_of::<Label>()
    }

    /// Detaches a label set from its table if only few rows of the table are still in use;
    /// otherwise these would keep the whole table in memory.
    #[must_use]
    pub fn settled(self) -> Labels {
        const PART: usize = 4;
        match &self.0 {
            LabelStorage::Row(table, ..) if Arc::strong_count(table).saturating_mul(PART) < table.rows() => {
                Labels(LabelStorage::Own(self.owned().collect()))
            }
            _ => self,
        }
    }

    /// Returns the value of `name`, or the empty text: PromQL does not distinguish empty and absent
    /// labels.
    pub fn value(&self, name: &str) -> &str {
        self.get(name).map_or("", |value| value)
    }

    /// Returns the value of `name`, if present.
    pub fn get(&self, name: &str) -> Option<&Arc<str>> {
        match &self.0 {
            LabelStorage::Own(labels) => {
                let index = labels.binary_search_by(|label| (*label.name).cmp(name)).ok()?;
                labels.get(index).map(|label| &label.value)
            }
            LabelStorage::Row(table, row, mask) => table.get(name, *row, *mask),
        }
    }

    /// Returns the metric name, or the empty text.
    pub fn metric_name(&self) -> &str {
        self.value(METRIC_NAME)
    }

    /// Iterates over the labels in order of their names.
    pub fn iter(&self) -> LabelsIter<'_> {
        LabelsIter(match &self.0 {
            LabelStorage::Own(labels) => LabelsIterState::Own(labels.iter()),
            LabelStorage::Row(table, row, mask) => {
                LabelsIterState::Row(RowIter { table, row: *row, columns: MaskColumns(*mask) })
            }
        })
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        match &self.0 {
            LabelStorage::Own(labels) => labels.len(),
            LabelStorage::Row(_, _, mask) => mask.count_ones() as usize,
        }
    }

    /// Returns whether there are no labels: `{}`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a builder with these labels, for a changed copy.
    pub fn to_builder(&self) -> LabelsBuilder {
        LabelsBuilder { labels: self.owned().collect() }
    }

    /// Returns the labels for which `keep` returns true.
    #[must_use]
    pub fn filtered(&self, mut keep: impl FnMut(&str) -> bool) -> Labels {
        match &self.0 {
            LabelStorage::Own(labels) if labels.iter().all(|label| keep(&label.name)) => self.clone(),
            LabelStorage::Own(labels) => {
                Labels(LabelStorage::Own(labels.iter().filter(|label| keep(&label.name)).cloned().collect()))
            }
            LabelStorage::Row(table, row, mask) => {
                Labels(LabelStorage::Row(Arc::clone(table), *row, mask & table.mask(keep)))
            }
        }
    }

    /// Removes from many label sets the labels for which `keep` returns false. For consecutive rows
    /// of one table `keep` is evaluated once.
    pub fn filter_all<'l>(all: impl IntoIterator<Item = &'l mut Labels>, mut keep: impl FnMut(&str) -> bool) {
        let mut last: Option<(Arc<LabelTable>, LabelMask)> = None;
        for labels in all {
            match &mut labels.0 {
                LabelStorage::Own(_) => *labels = labels.filtered(&mut keep),
                LabelStorage::Row(table, _, mask) => {
                    let known = last.as_ref().filter(|(of, _)| Arc::ptr_eq(of, table)).map(|(_, kept)| *kept);
                    let kept = known.unwrap_or_else(|| {
                        let kept = table.mask(&mut keep);
                        last = Some((Arc::clone(table), kept));
                        kept
                    });
                    *mask &= kept;
                }
            }
        }
    }

    /// Iterates over owned copies of the labels, which share the texts.
    pub fn owned(&self) -> impl Iterator<Item = Label> {
        let (own, row) = match &self.iter().0 {
            LabelsIterState::Own(labels) => (Some(labels.clone()), None),
            LabelsIterState::Row(row) => (None, Some(row.clone())),
        };
        let of_row = row.into_iter().flat_map(RowIter::arcs);
        let of_row = of_row.map(|(name, value)| Label { name: Arc::clone(name), value: Arc::clone(value) });
        own.into_iter().flatten().cloned().chain(of_row)
    }
}

/// An iterator over the labels of a set, in order of their names.
#[derive(Clone, Debug)]
pub struct LabelsIter<'a>(LabelsIterState<'a>);

#[derive(Clone, Debug)]
enum LabelsIterState<'a> {
    Own(std::slice::Iter<'a, Label>),
    Row(RowIter<'a>),
}

impl<'a> Iterator for LabelsIter<'a> {
    type Item = LabelRef<'a>;

    fn next(&mut self) -> Option<LabelRef<'a>> {
        match &mut self.0 {
            LabelsIterState::Own(labels) => {
                labels.next().map(|label| LabelRef { name: &label.name, value: &label.value })
            }
            LabelsIterState::Row(row) => row.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            LabelsIterState::Own(labels) => labels.size_hint(),
            LabelsIterState::Row(row) => row.size_hint(),
        }
    }
}

impl ExactSizeIterator for LabelsIter<'_> {}

impl<'a> IntoIterator for &'a Labels {
    type Item = LabelRef<'a>;
    type IntoIter = LabelsIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Formats the label set with all labels in braces: `{__name__="up", job="api"}`.
impl std::fmt::Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{")?;
        for (index, label) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}={:?}", label.name, label.value)?;
        }
        f.write_str("}")
    }
}

/// A builder of label sets, which keeps its labels sorted.
#[derive(Clone, Debug, Default)]
pub struct LabelsBuilder {
    labels: Vec<Label>,
}

impl LabelsBuilder {
    /// Sets the label `name`, replacing an existing one; an empty value removes it.
    pub fn set(&mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> &mut LabelsBuilder {
        let label = Label { name: name.into(), value: value.into() };
        let found = self.labels.binary_search_by(|have| have.name.cmp(&label.name));
        match (found, label.value.is_empty()) {
            (Ok(at), true) => drop(self.labels.remove(at)),
            (Ok(at), false) => self.labels[at] = label,
            (Err(_), true) => {}
            (Err(at), false) => self.labels.insert(at, label),
        }
        self
    }

    /// Removes the label `name`, if present.
    pub fn remove(&mut self, name: &str) -> &mut LabelsBuilder {
        self.labels.retain(|label| &*label.name != name);
        self
    }

    /// Builds the label set.
    pub fn build(self) -> Labels {
        Labels(LabelStorage::Own(self.labels.into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_are_sorted_unique_and_never_empty() {
        let labels = Labels::from_pairs([("b", "2"), ("a", "1"), ("c", ""), ("b", "3")]);
        assert_eq!(labels.to_string(), r#"{a="1", b="3"}"#);
        assert_eq!(labels.value("c"), "");
        assert_eq!(labels.filtered(|name| name != "a").len(), 1);
    }

    #[test]
    fn order_is_pair_by_pair_and_a_prefix_comes_first() {
        let of = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied());
        let sorted =
            [of(&[]), of(&[("a", "1")]), of(&[("a", "1"), ("b", "1")]), of(&[("a", "2")]), of(&[("b", "0")])];
        assert!(sorted.is_sorted());
    }

    const TEXTS: [&str; 5] = ["a", "b", "c", "long enough", "é"];

    /// Returns rows of a table, and the same label sets outside of a table.
    fn both(rows: &[[usize; 3]], gone: usize) -> (Vec<Labels>, Vec<Labels>) {
        let keep = |name: &str| name != ["__name__", "job", "zone"][gone % 3] || gone > 3;
        let column = |at: usize, name: &str| {
            let texts = TEXTS.map(Arc::from).to_vec();
            let places = rows.iter().map(|row| u32::try_from(row[at]).expect("small")).collect();
            LabelColumn { name: name.into(), values: LabelValues::Each { texts, places } }
        };
        let same = LabelColumn { name: "same".into(), values: LabelValues::Same("s".into()) };
        let columns = vec![column(0, "__name__"), column(1, "job"), same, column(2, "zone")];
        let own = |row: &[usize; 3]| {
            let [name, job, zone] = row.map(|at| TEXTS[at]);
            Labels::from_pairs([("__name__", name), ("job", job), ("same", "s"), ("zone", zone)])
                .filtered(keep)
        };
        let own: Vec<Labels> = rows.iter().map(own).collect();
        let ascends = gone > 3 && own.is_sorted_by(|a, b| a < b);
        let table = Arc::new(LabelTable::new(columns, rows.len(), ascends).expect("whole"));
        (Labels::of_table(&table, keep).collect(), own)
    }

    fn hash(labels: &Labels) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        labels.hash(&mut hasher);
        hasher.finish()
    }

    proptest! {
        #[test]
        fn a_row_of_a_table_equals_an_own_label_set(
            mut rows in prop::collection::vec([0usize..5, 0..5, 0..5], 1..12),
            gone in 0usize..8,
            sorted: bool,
        ) {
            if sorted {
                rows.sort_unstable_by_key(|row| row.map(|at| TEXTS[at]));
                rows.dedup();
            }
            let (tabled, own) = both(&rows, gone);
            for (a, own_a) in tabled.iter().zip(&own) {
                prop_assert_eq!(a, own_a);
                prop_assert_eq!(own_a, a);
                prop_assert_eq!(hash(a), hash(own_a));
                prop_assert_eq!(a.to_string(), own_a.to_string());
                prop_assert_eq!(a.len(), own_a.len());
                prop_assert!(a.iter().eq(own_a.iter()));
                prop_assert_eq!(a.iter().len(), own_a.len());
                prop_assert_eq!(&a.clone().settled(), own_a);
                prop_assert_eq!(&a.to_builder().build(), own_a);
                for name in ["__name__", "job", "none", "same", "zone"] {
                    prop_assert_eq!(a.get(name), own_a.get(name));
                    prop_assert_eq!(a.filtered(|have| have != name), own_a.filtered(|have| have != name));
                }
                for (b, own_b) in tabled.iter().zip(&own) {
                    prop_assert_eq!(a.cmp(b), own_a.cmp(own_b));
                    prop_assert_eq!(a.cmp(own_b), own_a.cmp(b));
                    prop_assert_eq!(a == b, own_a == own_b);
                    let (a, own_a) = (a.filtered(|name| name != "job"), own_a.filtered(|name| name != "job"));
                    prop_assert_eq!(a.cmp(b), own_a.cmp(own_b));
                }
            }
        }
    }

    #[test]
    fn a_few_remaining_rows_do_not_keep_their_table_in_memory() {
        let rows: Vec<[usize; 3]> = (0..100).map(|n| [n / 25, n / 5 % 5, n % 5]).collect();
        let (mut tabled, own) = both(&rows, 5);
        let table = |labels: &Labels| matches!(labels.0, LabelStorage::Row(..));
        tabled.truncate(50);
        tabled = tabled.into_iter().map(Labels::settled).collect();
        assert!(tabled.iter().all(table));
        tabled.truncate(10);
        tabled = tabled.into_iter().map(Labels::settled).collect();
        assert!(!tabled.iter().any(table));
        assert_eq!(tabled, own[..10]);
    }
}
