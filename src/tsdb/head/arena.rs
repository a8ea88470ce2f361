//! The records of a stripe's full tails, in pages that are only appended to and released as a
//! whole.
//!
//! A series' records are a chain from the newest to the oldest, with one link in each. Records
//! never move, so pages need no slack to grow. Pages fill in order of arrival, so a sealed window
//! releases whole pages. Short records, which a longer one will replace, have separate pages, which
//! are released when all their records are replaced.

/// The maximum size of a page in bytes. On average half of the last page is unused: 4 B for each of
/// 1,024 series.
const PAGE_BYTES: usize = 1 << PLACE_BITS;
/// The maximum size of a page of short records in bytes.
const SHORT_PAGE_BYTES: usize = 2 << 10;
const PLACE_BITS: u32 = 13;
/// The maximum number of pages of a stripe, which is 4 GiB.
const PAGES_MAX: usize = 1 << (32 - PLACE_BITS);
/// The initial size of a stripe's first page in bytes. It is small because an organisation may have
/// only ten series.
const PAGE_BYTES_FIRST: usize = 128;
/// The memory of a page besides its capacity, in bytes: its entry, and the allocator's header.
const PAGE_EXTRA: usize = size_of::<ArenaPage>() + 16;

/// The location of a record: `page << 13 | offset`.
pub(super) type Link = u32;
/// The link of no record. The last byte of the last page never begins a record.
pub(super) const NONE: Link = u32::MAX;

/// The expected lifetime of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordLifetime {
    Long,
    /// The record will be replaced by a longer one.
    Short,
}

impl RecordLifetime {
    /// Returns the maximum size of a page in bytes. Records are less than half as long.
    const fn page_bytes(self) -> usize {
        match self {
            RecordLifetime::Long => PAGE_BYTES,
            RecordLifetime::Short => SHORT_PAGE_BYTES,
        }
    }
}

/// Pages of records.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pages: Vec<ArenaPage>,
    /// The indexes of unused pages.
    free: Vec<usize>,
    /// The page that long records are appended to.
    open: Option<usize>,
    /// The page that short records are appended to.
    open_short: Option<usize>,
    bytes: usize,
    /// The bytes of replaced records, which are included in `bytes`.
    replaced: usize,
}

#[derive(Debug)]
struct ArenaPage {
    bytes: Vec<u8>,
    /// The greatest time of a sample in the page.
    greatest: i64,
    lifetime: RecordLifetime,
    /// The bytes of replaced records.
    replaced: usize,
}

impl Arena {
    /// Returns the memory of all pages, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of replaced records in pages that still have other records.
    pub(super) const fn replaced(&self) -> usize {
        self.replaced
    }

    const fn open(&mut self, lifetime: RecordLifetime) -> &mut Option<usize> {
        match lifetime {
            RecordLifetime::Long => &mut self.open,
            RecordLifetime::Short => &mut self.open_short,
        }
    }

    /// Appends a record with samples up to `greatest`. Returns None if links cannot address another
    /// page.
    pub(super) fn put(&mut self, record: &[u8], greatest: i64, lifetime: RecordLifetime) -> Option<Link> {
        let open = *self.open(lifetime);
        let number = match open {
            Some(open) if self.room(open) >= record.len() => open,
            _ => self.open_page(lifetime)?,
        };
        let page = self.pages.get_mut(number)?;
        let place = page.bytes.len();
        let before = page.bytes.capacity();
        if before - place < record.len() {
            let wanted =
                (before * 2).max(place + record.len()).clamp(PAGE_BYTES_FIRST, lifetime.page_bytes());
            page.bytes.reserve_exact(wanted - place);
        }
        page.bytes.extend_from_slice(record);
        page.greatest = page.greatest.max(greatest);
        self.bytes += page.bytes.capacity() - before;
        u32::try_from(number << PLACE_BITS | place).ok()
    }

    fn room(&self, number: usize) -> usize {
        self.pages.get(number).map_or(0, |page| page.lifetime.page_bytes() - page.bytes.len())
    }

    /// Removes a replaced record of `bytes` bytes, which no link refers to.
    pub(super) fn replace(&mut self, record: Link, bytes: usize) {
        let number = (record >> PLACE_BITS) as usize;
        let Some(page) = self.pages.get_mut(number) else { return };
        page.replaced += bytes;
        self.replaced += bytes;
        if page.replaced < page.bytes.len() {
            return;
        }
        if self.open_short == Some(number) {
            // The page is reused for as many records.
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

    fn open_page(&mut self, lifetime: RecordLifetime) -> Option<usize> {
        // A stripe that filled one page will fill another.
        let capacity = if self.open(lifetime).is_some() { lifetime.page_bytes() } else { 0 };
        let page =
            ArenaPage { bytes: Vec::with_capacity(capacity), greatest: i64::MIN, lifetime, replaced: 0 };
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
        *self.open(lifetime) = Some(number);
        Some(number)
    }

    /// Returns the bytes from a record to the end of its page.
    pub(super) fn at(&self, link: Link) -> Option<&[u8]> {
        let page = self.pages.get((link >> PLACE_BITS) as usize)?;
        page.bytes.get(link as usize % PAGE_BYTES..).filter(|bytes| !bytes.is_empty())
    }

    /// Returns the link to the previous record, which is in the first four bytes.
    #[inline]
    pub(super) fn before(&self, record: Link) -> Link {
        let link = self.at(record).and_then(<[u8]>::first_chunk);
        link.map_or(NONE, |link| Link::from_le_bytes(*link))
    }

    /// Replaces the first four bytes of a record, which link to the previous record.
    pub(super) fn relink(&mut self, record: Link, to: Link) {
        let page = self.pages.get_mut((record >> PLACE_BITS) as usize);
        let place = page.and_then(|page| page.bytes.get_mut(record as usize % PAGE_BYTES..));
        if let Some(place) = place.and_then(|bytes| bytes.first_chunk_mut()) {
            *place = to.to_le_bytes();
        }
    }

    /// Releases the pages whose samples are all before `until`. No link may refer to a record in
    /// these.
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
    fn records_are_readable_until_their_page_has_only_old_ones() {
        let mut arena = Arena::default();
        let record = |n: u8| [n; 200];
        let links: Vec<Link> = (0..200)
            .map(|n| arena.put(&record(n), i64::from(n), RecordLifetime::Long).expect("room"))
            .collect();
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
        let again = arena.put(&record(9), 300, RecordLifetime::Long).expect("room");
        assert!(arena.bytes() < 35_000, "{}", arena.bytes());
        assert_eq!(arena.at(again).expect("there")[..200], record(9));
        arena.release(1_000);
        assert_eq!(arena.bytes(), 0);
        assert!(arena.at(NONE).is_none());
    }

    #[test]
    fn a_small_stripe_has_small_pages() {
        let mut arena = Arena::default();
        arena.put(&[1; 20], 0, RecordLifetime::Long).expect("room");
        assert!(arena.bytes() < 300, "{}", arena.bytes());
    }
}
