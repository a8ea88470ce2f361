//! Label sets told apart by a part of their labels.

use rapidhash::RapidHashMap;

use crate::model::Labels;

/// Numbers label sets by those of their labels that are kept, from 0 in order of first appearance.
///
/// Names and values are interned by the store: sets whose kept texts lie in the same places are equal, and their labels
/// are neither read nor copied. Those that were made on the way are compared as texts.
#[derive(Default)]
pub(super) struct Keyed<'l> {
    by_place: RapidHashMap<Box<[usize]>, usize>,
    by_text: RapidHashMap<Labels, usize>,
    key: Vec<usize>,
    /// Texts whose places are known must stay where they are.
    _labels: std::marker::PhantomData<&'l Labels>,
}

impl<'l> Keyed<'l> {
    /// The number of a label set; the kept labels where it is the first of that number.
    pub(super) fn number(
        &mut self,
        labels: &'l Labels,
        keep: impl Fn(&str) -> bool,
    ) -> (usize, Option<Labels>) {
        self.key.clear();
        for label in labels {
            if keep(label.name) {
                self.key.push(label.name.as_ptr().addr());
                self.key.push(label.value.as_ptr().addr());
            }
        }
        if let Some(number) = self.by_place.get(&self.key[..]) {
            return (*number, None);
        }
        let kept = labels.filtered(keep);
        let next = self.by_text.len();
        let number = *self.by_text.entry(kept.clone()).or_insert(next);
        self.by_place.insert(self.key.as_slice().into(), number);
        (number, (number == next).then_some(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number_wherever_they_lie() {
        let of = |id: &str, group: &str| Labels::from_pairs([("id", id), ("group", group)]);
        let sets = [of("1", "a"), of("2", "b"), of("3", "a")];
        let mut keyed = Keyed::default();
        let by_group = |name: &str| name == "group";
        assert_eq!(keyed.number(&sets[0], by_group).0, 0);
        assert_eq!(keyed.number(&sets[1], by_group).0, 1);
        assert_eq!(keyed.number(&sets[2], by_group), (0, None), "another text of the same letters");
        assert_eq!(keyed.number(&sets[1], by_group), (1, None));
    }
}
