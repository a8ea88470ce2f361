//! The bytes of a stripe's full tails: pages that are appended to and thrown away whole.
//!
//! A series' records are a chain from the newest to the oldest, one link each. Nothing is ever moved to grow, so there
//! is no slack in what is there; a window that was sealed gives its pages back, since pages fill in order of arrival.
//! Short records, which a longer one will replace, have pages of their own: those go when none of theirs is left.

/// Bytes of a page at most: half of the last one is slack, 4 B for each of 1,024 series.
const PAGE_BYTES: usize = 1 << PLACE_BITS;
/// Bytes of a page of short records.
const SHORT_PAGE_BYTES: usize = 2 << 10;
const PLACE_BITS: u32 = 13;
/// A stripe has so many pages at most: 4 GiB.
const PAGES_MAX: usize = 1 << (32 - PLACE_BITS);
/// The first page of a stripe begins small: an organisation may have ten series.
const PAGE_BYTES_FIRST: usize = 128;
/// Bytes of a page beside its capacity: its entry, and the allocator's header.
const PAGE_EXTRA: usize = size_of::<Page>() + 16;

/// Where a record lies: `page << 13 | place`.
pub(super) type Link = u32;
/// No record. (The last byte of the last page holds no whole record.)
pub(super) const NONE: Link = u32::MAX;

/// How long a record stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Long,
    /// Until another takes its place.
    Short,
}

impl Kept {
    /// Bytes of a page at most. No record has half as many.
    const fn page_bytes(self) -> usize {
        match self {
            Kept::Long => PAGE_BYTES,
            Kept::Short => SHORT_PAGE_BYTES,
        }
    }
}

/// Pages of records.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pages: Vec<Page>,
    /// Numbers of pages that hold nothing.
    free: Vec<usize>,
    /// The page that is appended to,
    open: Option<usize>,
    /// and that for short records.
    open_short: Option<usize>,
    bytes: usize,
    /// Of those, the bytes of records that were replaced.
    replaced: usize,
}

#[derive(Debug)]
struct Page {
    bytes: Vec<u8>,
    /// Greatest time of a sample in it.
    greatest: i64,
    kept: Kept,
    /// Bytes of records that were replaced.
    replaced: usize,
}

impl Arena {
    /// Memory of all pages.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of records that were replaced, and whose page has others that were not.
    pub(super) const fn replaced(&self) -> usize {
        self.replaced
    }

    const fn open(&mut self, kept: Kept) -> &mut Option<usize> {
        match kept {
            Kept::Long => &mut self.open,
            Kept::Short => &mut self.open_short,
        }
    }

    /// Appends a record, its samples up to `greatest`. None: the stripe has as many pages as links can tell apart.
    pub(super) fn put(&mut self, record: &[u8], greatest: i64, kept: Kept) -> Option<Link> {
        let open = *self.open(kept);
        let number = match open {
            Some(open) if self.room(open) >= record.len() => open,
            _ => self.open_page(kept)?,
        };
        let page = self.pages.get_mut(number)?;
        let place = page.bytes.len();
        let before = page.bytes.capacity();
        if before - place < record.len() {
            let wanted = (before * 2).max(place + record.len()).clamp(PAGE_BYTES_FIRST, kept.page_bytes());
            page.bytes.reserve_exact(wanted - place);
        }
        page.bytes.extend_from_slice(record);
        page.greatest = page.greatest.max(greatest);
        self.bytes += page.bytes.capacity() - before;
        u32::try_from(number << PLACE_BITS | place).ok()
    }

    fn room(&self, number: usize) -> usize {
        self.pages.get(number).map_or(0, |page| page.kept.page_bytes() - page.bytes.len())
    }

    /// Forgets a record of so many bytes in whose place there is another now; nothing links to it any more.
    pub(super) fn replace(&mut self, record: Link, bytes: usize) {
        let number = (record >> PLACE_BITS) as usize;
        let Some(page) = self.pages.get_mut(number) else { return };
        page.replaced += bytes;
        self.replaced += bytes;
        if page.replaced < page.bytes.len() {
            return;
        }
        if self.open_short == Some(number) {
            // The next ones are as many.
            self.replaced -= page.replaced;
            (page.replaced, page.greatest) = (0, i64::MIN);
            page.bytes.clear();
        } else if self.open != Some(number) {
            self.free_page(number);
        }
    }

    fn free_page(&mut self, number: usize) {
        let Some(page) = self.pages.get_mut(number) else { return };
        self.bytes -= page.bytes.capacity() + PAGE_EXTRA;
        self.replaced -= page.replaced;
        (page.bytes, page.replaced) = (Vec::new(), 0);
        self.free.push(number);
        for open in [&mut self.open, &mut self.open_short] {
            *open = open.filter(|open| *open != number);
        }
    }

    fn open_page(&mut self, kept: Kept) -> Option<usize> {
        // A stripe that filled a page will fill the next.
        let capacity = if self.open(kept).is_some() { kept.page_bytes() } else { 0 };
        let page = Page { bytes: Vec::with_capacity(capacity), greatest: i64::MIN, kept, replaced: 0 };
        let extra = page.bytes.capacity() + PAGE_EXTRA;
        let number = match self.free.pop() {
            Some(number) => {
                *self.pages.get_mut(number)? = page;
                number
            }
            None if self.pages.len() < PAGES_MAX => {
                self.pages.push(page);
                self.pages.len() - 1
            }
            None => return None,
        };
        self.bytes += extra;
        *self.open(kept) = Some(number);
        Some(number)
    }

    /// The bytes from a record on, to the end of its page.
    pub(super) fn at(&self, link: Link) -> Option<&[u8]> {
        let page = self.pages.get((link >> PLACE_BITS) as usize)?;
        page.bytes.get(link as usize % PAGE_BYTES..).filter(|bytes| !bytes.is_empty())
    }

    /// The record before this one: its first four bytes.
    #[inline]
    pub(super) fn before(&self, record: Link) -> Link {
        let link = self.at(record).and_then(<[u8]>::first_chunk);
        link.map_or(NONE, |link| Link::from_le_bytes(*link))
    }

    /// Changes the first four bytes of a record: its link to the one before it.
    pub(super) fn relink(&mut self, record: Link, to: Link) {
        let page = self.pages.get_mut((record >> PLACE_BITS) as usize);
        let place = page.and_then(|page| page.bytes.get_mut(record as usize % PAGE_BYTES..));
        if let Some(place) = place.and_then(|bytes| bytes.first_chunk_mut()) {
            *place = to.to_le_bytes();
        }
    }

    /// Throws away the pages whose samples all lie before `until`. No record that is still linked may lie there.
    pub(super) fn release(&mut self, until: i64) {
        for number in 0..self.pages.len() {
            if self.pages.get(number).is_some_and(|page| page.greatest < until && page.bytes.capacity() > 0) {
                self.free_page(number);
            }
        }
        if self.free.len() == self.pages.len() {
            *self = Arena::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_pages_go_when_all_of_them_are_old() {
        let mut arena = Arena::default();
        let record = |n: u8| [n; 200];
        let links: Vec<Link> =
            (0..200).map(|n| arena.put(&record(n), i64::from(n), Kept::Long).expect("room")).collect();
        assert!(arena.bytes() >= 40_000 && arena.bytes() < 50_000, "{}", arena.bytes());
        arena.relink(links[7], 5);
        for (n, link) in (0u8..).zip(&links) {
            let bytes = arena.at(*link).expect("there");
            assert_eq!(bytes[4..200], record(n)[4..]);
            assert_eq!(bytes[0], if n == 7 { 5 } else { n });
        }
        arena.release(100);
        assert!(arena.at(links[0]).is_none());
        assert_eq!(arena.at(links[100]).expect("there")[..200], record(100));
        let again = arena.put(&record(9), 300, Kept::Long).expect("room");
        assert!(arena.bytes() < 35_000, "{}", arena.bytes());
        assert_eq!(arena.at(again).expect("there")[..200], record(9));
        arena.release(1_000);
        assert_eq!(arena.bytes(), 0);
        assert!(arena.at(NONE).is_none());
    }

    #[test]
    fn a_small_stripe_has_small_pages() {
        let mut arena = Arena::default();
        arena.put(&[1; 20], 0, Kept::Long).expect("room");
        assert!(arena.bytes() < 300, "{}", arena.bytes());
    }
}
