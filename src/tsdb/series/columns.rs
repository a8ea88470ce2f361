//! Columns of small numbers: a byte each while all are below 256, two below 65,536, else four.

/// Makes room for one more, an eighth at a time: doubling would leave a third of a large table empty.
pub(super) fn make_room<T>(of: &mut Vec<T>) {
    if of.len() == of.capacity() {
        of.reserve_exact((of.len() / 8).max(4));
    }
}

/// Makes room for so many more, a half at a time; to be followed by [`trim`] once they are all there.
pub(super) fn make_room_for<T>(of: &mut Vec<T>, more: usize) {
    if of.capacity() - of.len() < more {
        of.reserve_exact((of.len() / 2).max(more));
    }
}

/// Gives back the room that [`make_room`] would not have made.
pub(super) fn trim<T>(of: &mut Vec<T>) {
    of.shrink_to(of.len() + of.len() / 8);
}

/// Numbers by row.
#[derive(Debug)]
pub(in crate::tsdb) enum Codes {
    /// All below 256.
    Bytes(Vec<u8>),
    /// All below 65,536.
    Pairs(Vec<u16>),
    /// Any.
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

    /// The rows whose code passes, ascending: for whole columns, twice as fast as row by row.
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

    /// The rows with this code, ascending: many codes are compared at a time.
    pub(in crate::tsdb) fn rows_of(&self, code: u32) -> Vec<u32> {
        /// Rows that are looked at together: a whole number of wide registers, few enough that one hit costs little.
        const TOGETHER: usize = 128;
        fn scan<T: Copy + PartialEq>(codes: &[T], code: T) -> Vec<u32> {
            let mut rows = Vec::new();
            for (first, some) in (0u32..).step_by(TOGETHER).zip(codes.chunks(TOGETHER)) {
                // Without a branch a row, so that the loop is one of wide registers.
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

    /// As [`trim`].
    pub(super) fn trim(&mut self) {
        match self {
            Codes::Bytes(codes) => trim(codes),
            Codes::Pairs(codes) => trim(codes),
            Codes::Words(codes) => trim(codes),
        }
    }

    /// Copies the codes from a row on to `out`, as far as there are any.
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

    /// Memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Codes::Bytes(codes) => codes.capacity(),
            Codes::Pairs(codes) => codes.capacity() * 2,
            Codes::Words(codes) => codes.capacity() * 4,
        }
    }

    /// Puts a code before that of `row`; at the end of the column behind it. `row` is at most its length.
    pub(super) fn insert(&mut self, row: usize, code: u32) {
        self.widen(code);
        match self {
            Codes::Bytes(codes) => put(codes, row, u8::try_from(code).unwrap_or_default()),
            Codes::Pairs(codes) => put(codes, row, u16::try_from(code).unwrap_or_default()),
            Codes::Words(codes) => put(codes, row, code),
        }
    }

    /// Sets the code of a row; rows before it that are missing become 0.
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

    /// Puts codes behind the last.
    pub(super) fn extend(&mut self, more: &[u32]) {
        self.widen(more.iter().copied().max().unwrap_or(0));
        match self {
            Codes::Bytes(codes) => {
                make_room_for(codes, more.len());
                codes.extend(more.iter().map(|code| u8::try_from(*code).unwrap_or_default()));
            }
            Codes::Pairs(codes) => {
                make_room_for(codes, more.len());
                codes.extend(more.iter().map(|code| u16::try_from(*code).unwrap_or_default()));
            }
            Codes::Words(codes) => {
                make_room_for(codes, more.len());
                codes.extend_from_slice(more);
            }
        }
    }

    /// Sets the codes of rows that have none, or 0, to one other than 0; false where a row has one.
    pub(super) fn claim(&mut self, rows: &[u32], code: u32) -> bool {
        fn claim<T: Copy + Default + PartialEq>(codes: &mut Vec<T>, rows: &[u32], code: T) -> bool {
            let end = rows.iter().max().map_or(0, |last| *last as usize + 1);
            if end > codes.len() {
                make_room_for(codes, end - codes.len());
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
    make_room(codes);
    codes.insert(row.min(codes.len()), code);
}

fn replace<T>(codes: &mut [T], row: usize, code: T) {
    if let Some(place) = codes.get_mut(row) {
        *place = code;
    }
}

/// The values of one label in a family, by row.
#[derive(Debug)]
pub(in crate::tsdb) enum Column {
    /// The same in all rows: no bytes a row.
    Same(u32),
    /// A code for each row.
    Each(Codes),
}

impl Column {
    /// The code of all rows, if all have the same.
    pub(in crate::tsdb) const fn same(&self) -> Option<u32> {
        match self {
            Column::Same(code) => Some(*code),
            Column::Each(_) => None,
        }
    }

    #[inline]
    pub(in crate::tsdb) fn code(&self, row: usize) -> Option<u32> {
        match self {
            Column::Same(code) => Some(*code),
            Column::Each(codes) => codes.get(row),
        }
    }

    /// Puts a code before that of `row`, of `rows` so far.
    pub(super) fn insert(&mut self, rows: usize, row: usize, code: u32) {
        match self {
            Column::Same(same) if *same == code => {}
            Column::Same(same) => {
                let same = *same;
                let mut codes = Codes::default();
                (0..rows).for_each(|row| codes.insert(row, same));
                codes.insert(row, code);
                *self = Column::Each(codes);
            }
            Column::Each(codes) => codes.insert(row, code),
        }
    }

    /// Puts codes behind those of the `rows` there are.
    pub(super) fn extend(&mut self, rows: usize, more: &[u32]) {
        if let Column::Same(same) = self {
            if more.iter().all(|code| code == same) {
                return;
            }
            let mut codes = Codes::default();
            codes.extend(&vec![*same; rows]);
            *self = Column::Each(codes);
        }
        if let Column::Each(codes) = self {
            codes.extend(more);
        }
    }

    /// Takes out the codes from a row on.
    pub(super) fn truncate(&mut self, rows: usize) {
        match self {
            Column::Same(_) => {}
            Column::Each(Codes::Bytes(codes)) => codes.truncate(rows),
            Column::Each(Codes::Pairs(codes)) => codes.truncate(rows),
            Column::Each(Codes::Words(codes)) => codes.truncate(rows),
        }
    }

    /// As [`trim`].
    pub(super) fn trim(&mut self) {
        if let Column::Each(codes) = self {
            codes.trim();
        }
    }

    /// Memory beside the column itself.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Column::Same(_) => 0,
            Column::Each(codes) => codes.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_is_claimed_once() {
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
            let (mut column, mut rows) = (Column::Same(first), vec![first]);
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
        fn many_codes_at_once_are_each_by_itself(
            pieces in prop::collection::vec(prop::collection::vec(prop_oneof![20 => 0u32..3, 3 => 0u32..400, 1 => any::<u32>()], 1..50), 1..8),
        ) {
            let first = pieces[0][0];
            let (mut column, mut rows) = (Column::Same(first), Vec::new());
            for piece in &pieces {
                column.extend(rows.len(), piece);
                rows.extend_from_slice(piece);
            }
            prop_assert_eq!((0..rows.len()).map_while(|row| column.code(row)).collect::<Vec<_>>(), rows);
        }
    }
}
