//! A series' identity: sorted, unique label names with non-empty values.

use std::cmp::Ordering;
use std::sync::Arc;

/// The label that holds the metric name.
pub const METRIC_NAME: &str = "__name__";

/// One name and its value; both are shared with whoever interned them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Never empty.
    pub name: Arc<str>,
    /// Never empty inside [`Labels`]: an empty value is an absent label.
    pub value: Arc<str>,
}

/// A label set, sorted by name, each name once, no empty values. Cheap to clone.
///
/// Ordering is Prometheus' `labels.Compare`: pair by pair, name before value, a proper prefix first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[Label]>);

impl Default for Labels {
    fn default() -> Labels {
        Labels(Arc::from([]))
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Labels) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    fn cmp(&self, other: &Labels) -> Ordering {
        // Texts are interned: those that are equal mostly lie in one place, and need not be read.
        let text = |a: &Arc<str>, b: &Arc<str>| if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.cmp(b) };
        let pairs = self.0.iter().zip(&*other.0);
        let apart = pairs.map(|(a, b)| text(&a.name, &b.name).then_with(|| text(&a.value, &b.value)));
        apart.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }
}

impl Labels {
    /// Sorts, drops empty values, and where a name stands twice keeps the later one.
    pub fn from_pairs<N: Into<Arc<str>>, V: Into<Arc<str>>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Labels {
        let mut builder = LabelsBuilder::default();
        for (name, value) in pairs {
            builder.set(name, value);
        }
        builder.build()
    }

    /// Takes labels that are already sorted, unique and non-empty, as a dictionary hands them out.
    pub fn from_sorted(labels: Vec<Label>) -> Labels {
        debug_assert!(labels.windows(2).all(|pair| pair[0].name < pair[1].name), "sorted and unique");
        debug_assert!(labels.iter().all(|label| !label.value.is_empty()), "no empty values");
        Labels(labels.into())
    }

    /// The value of `name`, or the empty text: PromQL makes no difference between empty and absent.
    pub fn value(&self, name: &str) -> &str {
        self.get(name).map_or("", |value| value)
    }

    /// The value of `name` where it is there.
    pub fn get(&self, name: &str) -> Option<&Arc<str>> {
        let place = self.0.binary_search_by(|label| (*label.name).cmp(name)).ok()?;
        self.0.get(place).map(|label| &label.value)
    }

    /// The metric name, or the empty text.
    pub fn metric_name(&self) -> &str {
        self.value(METRIC_NAME)
    }

    /// In order of name.
    pub fn iter(&self) -> std::slice::Iter<'_, Label> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none: `{}`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A changed copy is built from this one.
    pub fn to_builder(&self) -> LabelsBuilder {
        LabelsBuilder { labels: self.0.to_vec() }
    }

    /// The labels for which `keep` holds.
    #[must_use]
    pub fn filtered(&self, mut keep: impl FnMut(&str) -> bool) -> Labels {
        if self.0.iter().all(|label| keep(&label.name)) {
            return self.clone();
        }
        Labels(self.0.iter().filter(|label| keep(&label.name)).cloned().collect())
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = &'a Label;
    type IntoIter = std::slice::Iter<'a, Label>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// `{__name__="up", job="api"}` as Prometheus prints label sets: name first where there is one, then braces.
impl std::fmt::Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{")?;
        for (place, label) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{}={:?}", label.name, label.value)?;
        }
        f.write_str("}")
    }
}

/// Collects and changes labels; keeps them sorted.
#[derive(Clone, Debug, Default)]
pub struct LabelsBuilder {
    labels: Vec<Label>,
}

impl LabelsBuilder {
    /// Sets `name`, replacing what stood there; an empty value removes it.
    pub fn set(&mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> &mut LabelsBuilder {
        let label = Label { name: name.into(), value: value.into() };
        let place = self.labels.binary_search_by(|have| have.name.cmp(&label.name));
        match (place, label.value.is_empty()) {
            (Ok(at), true) => drop(self.labels.remove(at)),
            (Ok(at), false) => self.labels[at] = label,
            (Err(_), true) => {}
            (Err(at), false) => self.labels.insert(at, label),
        }
        self
    }

    /// Removes `name` where it is there.
    pub fn remove(&mut self, name: &str) -> &mut LabelsBuilder {
        self.labels.retain(|label| &*label.name != name);
        self
    }

    /// The finished set.
    pub fn build(self) -> Labels {
        Labels(self.labels.into())
    }
}

#[cfg(test)]
mod tests {
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
}
