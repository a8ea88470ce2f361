//! Texts and their codes, dense from 0.
//!
//! Each text is stored once, as an `Arc<str>` that rendered label sets share. A hash table with
//! slots of four bytes maps texts to codes.

use std::sync::Arc;

use super::identity::TextHash;
use super::order::CachedOrder;

/// The heap overhead of an `Arc<str>`: its counts, and the allocator's header and rounding.
const TEXT_EXTRA: usize = 16 + 8 + 8;
const EMPTY: u32 = u32::MAX;

/// A dictionary of texts.
#[derive(Debug)]
pub(in crate::tsdb) struct Dictionary {
    texts: Vec<Arc<str>>,
    /// A hash table of codes with linear probing; at least a quarter of the slots is empty.
    slots: Vec<u32>,
    hash: TextHash,
    /// Heap memory of the texts, in bytes.
    text_bytes: usize,
    /// The cached order of the texts.
    order: CachedOrder,
}

impl Dictionary {
    pub(in crate::tsdb) fn new(hash: TextHash) -> Dictionary {
        Dictionary {
            texts: Vec::new(),
            slots: Vec::new(),
            hash,
            text_bytes: 0,
            order: CachedOrder::default(),
        }
    }

    pub(in crate::tsdb) fn code(&self, text: &str) -> Option<u32> {
        let mut place = self.home(text);
        loop {
            let code = *self.slots.get(place)?;
            if self.text(code)?.as_ref() == text {
                return Some(code);
            }
            place = self.next_slot(place);
        }
    }

    pub(in crate::tsdb) fn text(&self, code: u32) -> Option<&Arc<str>> {
        self.texts.get(code as usize)
    }

    pub(in crate::tsdb) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the number of texts that [`Dictionary::order`] would have to sort.
    pub(in crate::tsdb) fn unordered(&self) -> usize {
        self.texts.len().saturating_sub(self.order.len())
    }

    /// Returns the memory in bytes, including that of the order, whether it exists or not.
    pub(super) fn bytes(&self) -> usize {
        let order = self.texts.len() * 4;
        self.texts.capacity() * size_of::<Arc<str>>() + self.slots.capacity() * 4 + self.text_bytes + order
    }

    /// Ages the cached order; see [`CachedOrder::age`].
    pub(super) fn age_order(&self) {
        self.order.age();
    }

    /// Returns all codes in order of their texts. The order is computed on demand and cached until
    /// it is unused for some time. Later texts are merged in.
    pub(in crate::tsdb) fn order(&self) -> Arc<[u32]> {
        let known = self.cached_order();
        if known.len() == self.texts.len() {
            return known;
        }
        let order = ordered(&self.texts, &known);
        self.cache_order(&order);
        order
    }

    /// Like [`Dictionary::order`], or None if the order is not complete and there are more than
    /// `texts_max` texts.
    pub(in crate::tsdb) fn order_at_once(&self, texts_max: usize) -> Option<Arc<[u32]>> {
        (self.unordered() == 0 || self.texts.len() <= texts_max).then(|| self.order())
    }

    /// Returns the cached order, which may cover only the first texts.
    pub(in crate::tsdb) fn cached_order(&self) -> Arc<[u32]> {
        self.order.get()
    }

    /// Caches an order of the first texts from [`ordered`], unless the cached order is longer.
    pub(in crate::tsdb) fn cache_order(&self, order: &Arc<[u32]>) {
        if self.order.len() < order.len() {
            self.order.set(Arc::clone(order));
        }
    }

    /// Returns all texts by code. Texts are never removed.
    pub(in crate::tsdb) fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }

    pub(super) fn intern(&mut self, text: &str) -> u32 {
        if let Some(code) = self.code(text) {
            return code;
        }
        // There are fewer codes than series times labels. The memory is exhausted long before 32
        // bits are.
        let code = u32::try_from(self.texts.len()).unwrap_or(EMPTY);
        super::columns::reserve_one(&mut self.texts);
        self.texts.push(text.into());
        self.text_bytes += text.len() + TEXT_EXTRA;
        if self.texts.len() * 4 > self.slots.len() * 3 {
            self.slots = vec![EMPTY; (self.texts.len() * 2).max(8)];
            (0..code).for_each(|code| self.insert_code(code));
        }
        self.insert_code(code);
        code
    }

    fn insert_code(&mut self, code: u32) {
        let Some(mut place) = self.text(code).map(|text| self.home(text)) else { return };
        while self.slots.get(place).is_some_and(|have| *have != EMPTY) {
            place = self.next_slot(place);
        }
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = code;
        }
    }

    fn home(&self, text: &str) -> usize {
        super::identity::home(self.hash.of(text.as_bytes()), self.slots.len())
    }

    fn next_slot(&self, place: usize) -> usize {
        if place + 1 < self.slots.len() { place + 1 } else { 0 }
    }
}

/// Returns the codes of texts in the order of the texts. `known` is the order of the first texts.
pub(in crate::tsdb) fn ordered(texts: &[Arc<str>], known: &[u32]) -> Arc<[u32]> {
    let text = |code: &u32| texts.get(*code as usize);
    let mut more: Vec<u32> = (0u32..).zip(texts).skip(known.len()).map(|(code, _)| code).collect();
    more.sort_unstable_by_key(text);
    let mut order = Vec::with_capacity(texts.len());
    let mut known = known.iter().copied().peekable();
    for code in more {
        while let Some(before) = known.next_if(|before| text(before) < text(&code)) {
            order.push(before);
        }
        order.push(code);
    }
    order.extend(known);
    order.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tsdb::series::identity::HashSecret;

    fn dictionary() -> Dictionary {
        Dictionary::new(TextHash::new(&HashSecret::of(&[2; 32], 1)))
    }

    #[test]
    fn every_text_has_its_code_and_no_other_has_one() {
        let mut dictionary = dictionary();
        assert_eq!((dictionary.code("a"), dictionary.code("")), (None, None));
        for n in 0..5_000 {
            assert_eq!(dictionary.intern(&format!("text {n}")), n);
        }
        for n in 0..5_000 {
            let text = format!("text {n}");
            assert_eq!((dictionary.code(&text), dictionary.intern(&text)), (Some(n), n));
            assert_eq!(dictionary.text(n).map(|have| &**have), Some(text.as_str()));
            assert_eq!(dictionary.code(&format!("other {n}")), None);
        }
        assert_eq!((dictionary.len(), dictionary.text(5_000)), (5_000, None));
    }

    #[test]
    fn the_order_of_texts_grows_with_them() {
        let mut dictionary = dictionary();
        assert!(dictionary.order().is_empty());
        for (texts, expected) in
            [(&["m", "c", "x"][..], &[1, 0, 2][..]), (&["d", "z", "a"], &[5, 1, 3, 0, 2, 4])]
        {
            for text in texts {
                dictionary.intern(text);
            }
            assert_eq!((&*dictionary.order(), &*dictionary.order()), (expected, expected));
        }
    }
}
