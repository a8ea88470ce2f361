//! Texts and their codes, dense from 0.
//!
//! A text is kept once, as an `Arc<str>` that rendered label sets share; its code is found through slots of four bytes
//! that hold codes alone.

use std::sync::Arc;

use super::identity::TextHash;
use super::order::Order;

/// An `Arc<str>` in the heap: its counts, and the allocator's header and rounding.
const TEXT_EXTRA: usize = 16 + 8 + 8;
const EMPTY: u32 = u32::MAX;

/// Texts and their codes.
#[derive(Debug)]
pub(in crate::tsdb) struct Dictionary {
    texts: Vec<Arc<str>>,
    /// Codes at the place of their text's hash or behind it; at least a quarter is empty.
    slots: Vec<u32>,
    hash: TextHash,
    /// Heap of the texts.
    text_bytes: usize,
    /// Codes in order of their texts, as far as a listing asked for it.
    order: Order,
}

impl Dictionary {
    pub(in crate::tsdb) fn new(hash: TextHash) -> Dictionary {
        Dictionary { texts: Vec::new(), slots: Vec::new(), hash, text_bytes: 0, order: Order::default() }
    }

    pub(in crate::tsdb) fn code(&self, text: &str) -> Option<u32> {
        let mut place = self.home(text);
        loop {
            let code = *self.slots.get(place)?;
            if self.text(code)?.as_ref() == text {
                return Some(code);
            }
            place = self.after(place);
        }
    }

    pub(in crate::tsdb) fn text(&self, code: u32) -> Option<&Arc<str>> {
        self.texts.get(code as usize)
    }

    pub(in crate::tsdb) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Texts that [`Dictionary::order`] would have to sort.
    pub(in crate::tsdb) fn unordered(&self) -> usize {
        self.texts.len().saturating_sub(self.order.len())
    }

    /// Memory, that of the order included, whether it is there or not.
    pub(super) fn bytes(&self) -> usize {
        let order = self.texts.len() * 4;
        self.texts.capacity() * size_of::<Arc<str>>() + self.slots.capacity() * 4 + self.text_bytes + order
    }

    /// Gives the order back where nobody has asked for it since this was called some times.
    pub(super) fn age_order(&self) {
        self.order.age();
    }

    /// All codes in order of their texts. Made when it is asked for and kept until it is unused for a while; texts that
    /// came since are merged in.
    pub(in crate::tsdb) fn order(&self) -> Arc<[u32]> {
        let known = self.known_order();
        if known.len() == self.texts.len() {
            return known;
        }
        let order = ordered(&self.texts, &known);
        self.keep_order(&order);
        order
    }

    /// As [`Dictionary::order`], if it is known or there are no more than `texts_max` texts.
    pub(in crate::tsdb) fn order_at_once(&self, texts_max: usize) -> Option<Arc<[u32]>> {
        (self.unordered() == 0 || self.texts.len() <= texts_max).then(|| self.order())
    }

    /// The order of the first texts, as far as it was asked for.
    pub(in crate::tsdb) fn known_order(&self) -> Arc<[u32]> {
        self.order.get()
    }

    /// Keeps an order of the first texts, which [`ordered`] has made of them, unless more are in order already.
    pub(in crate::tsdb) fn keep_order(&self, order: &Arc<[u32]>) {
        if self.order.len() < order.len() {
            self.order.set(Arc::clone(order));
        }
    }

    /// All texts, by code. Texts are only ever added.
    pub(in crate::tsdb) fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }

    pub(super) fn intern(&mut self, text: &str) -> u32 {
        if let Some(code) = self.code(text) {
            return code;
        }
        // Codes stay below the number of series times labels, and series ids are 32 bits: memory ends long before.
        let code = u32::try_from(self.texts.len()).unwrap_or(EMPTY);
        super::columns::make_room(&mut self.texts);
        self.texts.push(text.into());
        self.text_bytes += text.len() + TEXT_EXTRA;
        if self.texts.len() * 4 > self.slots.len() * 3 {
            self.slots = vec![EMPTY; (self.texts.len() * 2).max(8)];
            (0..code).for_each(|code| self.seat(code));
        }
        self.seat(code);
        code
    }

    fn seat(&mut self, code: u32) {
        let Some(mut place) = self.text(code).map(|text| self.home(text)) else { return };
        while self.slots.get(place).is_some_and(|have| *have != EMPTY) {
            place = self.after(place);
        }
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = code;
        }
    }

    fn home(&self, text: &str) -> usize {
        super::identity::home(self.hash.of(text.as_bytes()), self.slots.len())
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 < self.slots.len() { place + 1 } else { 0 }
    }
}

/// The codes of texts in order of those; `known` is that of the first texts.
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
    use crate::tsdb::series::identity::Secret;

    fn dictionary() -> Dictionary {
        Dictionary::new(TextHash::new(&Secret::of(&[2; 32], 1)))
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
