//! Columns of small numbers. A number takes one byte while all are below 256, two bytes below
//! 65,536, and else four.

/// Reserves capacity for one more element. The capacity grows by an eighth, because doubling would
/// leave a third of a large table empty.
pub(super) fn reserve_one<T>(of: &mut Vec<T>) {
    if of.len() == of.capacity() {
        of.reserve_exact((of.len() / 8).max(4));
    }
}

/// Reserves capacity for `more` elements and grows by at least a half. Call [`trim`] once all
/// elements are added.
pub(super) fn reserve_many<T>(of: &mut Vec<T>, more: usize) {
    if of.capacity() - of.len() < more {
        of.reserve_exact((of.len() / 2).max(more));
    }
}

/// Releases capacity beyond an eighth, as [`reserve_one`] would have left it.
pub(super) fn trim<T>(of: &mut Vec<T>) {
    of.shrink_to(of.len() + of.len() / 8);
}

/// Numbers by row.
#[derive(Debug)]
pub(in crate::tsdb) enum Codes {
    /// Numbers below 256.
    Bytes(Vec<u8>),
    /// Numbers below 65,536.
    Pairs(Vec<u16>),
    /// Any numbers.
    Words(Vec<u32>),
}

impl Default for Codes {
    fn default() -> Codes {
        Codes::Bytes(Vec::new())
    }
}

impl Codes {
    pub(in crate::tsdb) fn len(&self) -> usize {
        match self {
            Codes::Bytes(codes) => codes.len(),
            Codes::Pairs(codes) => codes.len(),
            Codes::Words(codes) => codes.len(),
        }
    }

    #[inline]
    pub(in crate::tsdb) fn get(&self, row: usize) -> Option<u32> {
        match self {
            Codes::Bytes(codes) => codes.get(row).map(|code| u32::from(*code)),
            Codes::Pairs(codes) => codes.get(row).map(|code| u32::from(*code)),
            Codes::Words(codes) => codes.get(row).copied(),
        }
    }

    /// Returns the rows whose code passes, ascending. This is twice as fast as [`Codes::get`] for
    /// each row of a whole column.
    pub(in crate::tsdb) fn rows_where(&self, mut pass: impl FnMut(u32) -> bool) -> Vec<u32> {
        fn scan<T: Copy + Into<u32>>(codes: &[T], pass: &mut impl FnMut(u32) -> bool) -> Vec<u32> {
            let rows = (0u32..).zip(codes);
            rows.filter(|(_, code)| pass((**code).into())).map(|(row, _)| row).collect()
        }
        match self {
            Codes::Bytes(codes) => scan(codes, &mut pass),
            Codes::Pairs(codes) => scan(codes, &mut pass),
            Codes::Words(codes) => scan(codes, &mut pass),
        }
    }

    /// Returns the rows with this code, ascending. Several codes are compared per instruction.
    pub(in crate::tsdb) fn rows_of(&self, code: u32) -> Vec<u32> {
        /// Rows that are compared together: a multiple of the SIMD register width, but few, so that
        /// a match costs little.
        const BATCH_ROWS: usize = 128;
        fn scan<T: Copy + PartialEq>(codes: &[T], code: T) -> Vec<u32> {
            let mut rows = Vec::new();
            for (first, some) in (0u32..).step_by(BATCH_ROWS).zip(codes.chunks(BATCH_ROWS)) {
                // The loop has no branch per row, so that the compiler vectorises it.
                if some.iter().fold(false, |any, one| any | (*one == code)) {
                    rows.extend((first..).zip(some).filter(|(_, one)| **one == code).map(|(row, _)| row));
                }
            }
            rows
        }
        match self {
            Codes::Bytes(codes) => u8::try_from(code).map_or_else(|_| Vec::new(), |code| scan(codes, code)),
            Codes::Pairs(codes) => u16::try_from(code).map_or_else(|_| Vec::new(), |code| scan(codes, code)),
            Codes::Words(codes) => scan(codes, code),
        }
    }

    /// Releases spare capacity; see [`trim`].
    pub(super) fn trim(&mut self) {
        match self {
            Codes::Bytes(codes) => trim(codes),
            Codes::Pairs(codes) => trim(codes),
            Codes::Words(codes) => trim(codes),
        }
    }

    /// Copies the codes from `row` on to `out`, as far as there are any.
    pub(super) fn copy_from(&self, row: usize, out: &mut [u32]) {
        fn copy<T: Copy + Into<u32>>(codes: &[T], row: usize, out: &mut [u32]) {
            for (out, code) in out.iter_mut().zip(codes.get(row..).unwrap_or_default()) {
                *out = (*code).into();
            }
        }
        match self {
            Codes::Bytes(codes) => copy(codes, row, out),
            Codes::Pairs(codes) => copy(codes, row, out),
            Codes::Words(codes) => copy(codes, row, out),
        }
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Codes::Bytes(codes) => codes.capacity(),
            Codes::Pairs(codes) => codes.capacity() * 2,
            Codes::Words(codes) => codes.capacity() * 4,
        }
    }

    /// Inserts a code before that of `row`, or appends it. `row` is at most the length.
    pub(super) fn insert(&mut self, row: usize, code: u32) {
        self.widen(code);
        match self {
            Codes::Bytes(codes) => put(codes, row, u8::try_from(code).unwrap_or_default()),
            Codes::Pairs(codes) => put(codes, row, u16::try_from(code).unwrap_or_default()),
            Codes::Words(codes) => put(codes, row, code),
        }
    }

    /// Sets the code of a row. Missing rows before it become 0.
    pub(super) fn set(&mut self, row: usize, code: u32) {
        while self.len() <= row {
            self.insert(self.len(), 0);
        }
        self.widen(code);
        match self {
            Codes::Bytes(codes) => replace(codes, row, u8::try_from(code).unwrap_or_default()),
            Codes::Pairs(codes) => replace(codes, row, u16::try_from(code).unwrap_or_default()),
            Codes::Words(codes) => replace(codes, row, code),
        }
    }

    /// Appends codes.
    pub(super) fn extend(&mut self, more: &[u32]) {
        self.widen(more.iter().copied().max().unwrap_or(0));
        match self {
            Codes::Bytes(codes) => {
                reserve_many(codes, more.len());
                codes.extend(more.iter().map(|code| u8::try_from(*code).unwrap_or_default()));
            }
            Codes::Pairs(codes) => {
                reserve_many(codes, more.len());
                codes.extend(more.iter().map(|code| u16::try_from(*code).unwrap_or_default()));
            }
            Codes::Words(codes) => {
                reserve_many(codes, more.len());
                codes.extend_from_slice(more);
            }
        }
    }

    /// Sets the codes of rows that have none, or 0, to `code`, which is not 0. Returns false if a
    /// row already has a code.
    pub(super) fn claim(&mut self, rows: &[u32], code: u32) -> bool {
        fn claim<T: Copy + Default + PartialEq>(codes: &mut Vec<T>, rows: &[u32], code: T) -> bool {
            let end = rows.iter().max().map_or(0, |last| *last as usize + 1);
            if end > codes.len() {
                reserve_many(codes, end - codes.len());
                codes.resize(end, T::default());
            }
            rows.iter().all(|row| {
                let place = codes.get_mut(*row as usize).filter(|place| **place == T::default());
                place.map(|place| *place = code).is_some()
            })
        }
        self.widen(code);
        match self {
            Codes::Bytes(codes) => claim(codes, rows, u8::try_from(code).unwrap_or_default()),
            Codes::Pairs(codes) => claim(codes, rows, u16::try_from(code).unwrap_or_default()),
            Codes::Words(codes) => claim(codes, rows, code),
        }
    }

    fn widen(&mut self, code: u32) {
        let all = |codes: &Codes| (0..codes.len()).map_while(|row| codes.get(row)).collect::<Vec<u32>>();
        match self {
            Codes::Words(_) => {}
            Codes::Bytes(_) if code <= u32::from(u8::MAX) => {}
            _ if code > u32::from(u16::MAX) => *self = Codes::Words(all(self)),
            Codes::Bytes(codes) => *self = Codes::Pairs(codes.iter().map(|code| u16::from(*code)).collect()),
            Codes::Pairs(_) => {}
        }
    }
}

fn put<T>(codes: &mut Vec<T>, row: usize, code: T) {
    reserve_one(codes);
    codes.insert(row.min(codes.len()), code);
}

fn replace<T>(codes: &mut [T], row: usize, code: T) {
    if let Some(place) = codes.get_mut(row) {
        *place = code;
    }
}

/// The values of one label in a family, by row.
#[derive(Debug)]
pub(in crate::tsdb) enum CodeColumn {
    /// All rows have the same code. It takes no memory per row.
    Same(u32),
    /// A code for each row.
    Each(Codes),
}

impl CodeColumn {
    /// Returns the code of all rows, if all have the same.
    pub(in crate::tsdb) const fn same(&self) -> Option<u32> {
        match self {
            CodeColumn::Same(code) => Some(*code),
            CodeColumn::Each(_) => None,
        }
    }

    #[inline]
    pub(in crate::tsdb) fn code(&self, row: usize) -> Option<u32> {
        match self {
            CodeColumn::Same(code) => Some(*code),
            CodeColumn::Each(codes) => codes.get(row),
        }
    }

    /// Inserts a code before that of `row`. The column has `rows` rows so far.
    pub(super) fn insert(&mut self, rows: usize, row: usize, code: u32) {
        match self {
            CodeColumn::Same(same) if *same == code => {}
            CodeColumn::Same(same) => {
                let same = *same;
                let mut codes = Codes::default();
                (0..rows).for_each(|row| codes.insert(row, same));
                codes.insert(row, code);
                *self = CodeColumn::Each(codes);
            }
            CodeColumn::Each(codes) => codes.insert(row, code),
        }
    }

    /// Appends codes. The column has `rows` rows so far.
    pub(super) fn extend(&mut self, rows: usize, more: &[u32]) {
        if let CodeColumn::Same(same) = self {
            if more.iter().all(|code| code == same) {
                return;
            }
            let mut codes = Codes::default();
            codes.extend(&vec![*same; rows]);
            *self = CodeColumn::Each(codes);
        }
        if let CodeColumn::Each(codes) = self {
            codes.extend(more);
        }
    }

    /// Removes the codes from row `rows` on.
    pub(super) fn truncate(&mut self, rows: usize) {
        match self {
            CodeColumn::Same(_) => {}
            CodeColumn::Each(Codes::Bytes(codes)) => codes.truncate(rows),
            CodeColumn::Each(Codes::Pairs(codes)) => codes.truncate(rows),
            CodeColumn::Each(Codes::Words(codes)) => codes.truncate(rows),
        }
    }

    /// Releases spare capacity; see [`trim`].
    pub(super) fn trim(&mut self) {
        if let CodeColumn::Each(codes) = self {
            codes.trim();
        }
    }

    /// Returns the heap memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            CodeColumn::Same(_) => 0,
            CodeColumn::Each(codes) => codes.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_can_be_claimed_only_once() {
        let mut codes = Codes::default();
        assert!(codes.claim(&[2, 0, 5], 7) && codes.claim(&[1], 300) && codes.claim(&[], 1));
        let all: Vec<u32> = (0..codes.len()).map_while(|row| codes.get(row)).collect();
        assert_eq!(all, [7, 300, 7, 0, 0, 7]);
        assert!(!codes.claim(&[3, 5], 1) && !codes.claim(&[4, 4], 1));
    }

    proptest! {
        #[test]
        fn a_column_equals_a_vec(
            inserts in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![20 => 0u32..3, 3 => 0u32..400, 1 => any::<u32>()]), 1..200),
        ) {
            let first = inserts[0].1;
            let (mut column, mut rows) = (CodeColumn::Same(first), vec![first]);
            for (at, code) in &inserts[1..] {
                let row = at.index(rows.len() + 1);
                column.insert(rows.len(), row, *code);
                rows.insert(row, *code);
            }
            let all: Vec<u32> = (0..rows.len()).map_while(|row| column.code(row)).collect();
            prop_assert_eq!(&all, &rows);
            let mut codes = Codes::default();
            for (row, code) in rows.iter().enumerate().rev() {
                codes.set(row, *code);
            }
            prop_assert_eq!((0..codes.len()).map_while(|row| codes.get(row)).collect::<Vec<_>>(), rows.clone());
            for code in [0, 1, 2, 300, first] {
                let expected: Vec<u32> = (0..).zip(&rows).filter(|(_, one)| **one == code).map(|(row, _)| row).collect();
                prop_assert_eq!(codes.rows_of(code), expected.clone());
                prop_assert_eq!(codes.rows_where(|one| one == code), expected);
            }
        }

        #[test]
        fn appending_many_codes_equals_appending_each(
            batches in prop::collection::vec(prop::collection::vec(prop_oneof![20 => 0u32..3, 3 => 0u32..400, 1 => any::<u32>()], 1..50), 1..8),
        ) {
            let first = batches[0][0];
            let (mut column, mut rows) = (CodeColumn::Same(first), Vec::new());
            for batch in &batches {
                column.extend(rows.len(), batch);
                rows.extend_from_slice(batch);
            }
            prop_assert_eq!((0..rows.len()).map_while(|row| column.code(row)).collect::<Vec<_>>(), rows);
        }
    }
}
