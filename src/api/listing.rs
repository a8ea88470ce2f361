//! Pages of a listing: `limit` and `cursor` in, `next_cursor` out (docs/specification.md C3, C4, C8).
//!
//! A cursor says after which row the next page begins, by what the listing is ordered by: the row itself may be gone by
//! then, and no row that stays is left out or told twice. To clients it is opaque.

use std::cmp::Reverse;
use std::fmt::Display;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};

use super::body::Json;
use super::error::{ApiError, ApiResult};
use super::params::Params;
use crate::identity::UserId;
use crate::model::{OrgId, Timestamp};

/// Rows of one page, at most and where the caller does not say.
pub const ROWS_MAX: usize = 1_000;

/// What a row is found again by: its listing is in this order, and no two rows have the same.
pub trait Place: Ord + Sized {
    /// Read back by [`Place::read`].
    fn write(&self) -> String;
    /// `None` for what [`Place::write`] did not write.
    fn read(text: &str) -> Option<Self>;
}

/// When it was made, and its name.
impl<I: Ord + Display + FromStr> Place for (Timestamp, I) {
    fn write(&self) -> String {
        format!("{} {}", self.0.as_ms(), self.1)
    }

    fn read(text: &str) -> Option<Self> {
        let (ms, name) = text.split_once(' ')?;
        Some((Timestamp::from_ms(ms.parse().ok()?), name.parse().ok()?))
    }
}

/// A name alone.
impl Place for String {
    fn write(&self) -> String {
        self.clone()
    }

    fn read(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Place for UserId {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Place for OrgId {
    fn write(&self) -> String {
        self.0.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().map(OrgId)
    }
}

/// The greatest first.
impl<P: Place> Place for Reverse<P> {
    fn write(&self) -> String {
        self.0.write()
    }

    fn read(text: &str) -> Option<Self> {
        P::read(text).map(Reverse)
    }
}

/// The page that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    limit: usize,
    after: Option<String>,
}

impl Page {
    /// Of a URL's query in which nothing else is looked at.
    ///
    /// # Errors
    /// As [`Page::take`].
    pub fn of_query(query: Option<&str>) -> ApiResult<Page> {
        Page::take(&mut Params::of_query(query)?)
    }

    /// Takes `limit` and `cursor`.
    ///
    /// # Errors
    /// 400 `invalid_parameter` and `duplicate_parameter`.
    pub fn take(params: &mut Params) -> ApiResult<Page> {
        let limit = params.count("limit", 1, ROWS_MAX)?.unwrap_or(ROWS_MAX);
        Ok(Page { limit, after: take_cursor(params)? })
    }

    /// Of `rows`, which are in the order of `place`, those of this page; and the cursor of the next one if there is one.
    ///
    /// # Errors
    /// 400 `invalid_parameter` for a cursor of another listing.
    pub fn cut<T, P: Place>(
        &self,
        rows: &[T],
        place: impl Fn(&T) -> P,
    ) -> ApiResult<(std::ops::Range<usize>, Option<String>)> {
        let after = self.after.as_deref().map(|text| P::read(text).ok_or_else(unknown_cursor)).transpose()?;
        let begin = after.map_or(0, |after| rows.partition_point(|row| place(row) <= after));
        let end = begin.saturating_add(self.limit).min(rows.len());
        let last = rows.get(begin..end).and_then(<[T]>::last).filter(|_| end < rows.len());
        Ok((begin..end, last.map(|row| cursor(&place(row).write()))))
    }

    /// The answer to it: the page's rows as `shown`, below `data`.
    ///
    /// # Errors
    /// As [`Page::cut`].
    pub fn answer<T, P: Place>(
        &self,
        rows: &[T],
        place: impl Fn(&T) -> P,
        shown: impl Fn(&T) -> Value,
    ) -> ApiResult<Json<Value>> {
        let (page, next) = self.cut(rows, place)?;
        let data: Vec<Value> = rows.get(page).unwrap_or_default().iter().map(shown).collect();
        Ok(Json(json!({ "data": data, "next_cursor": next })))
    }
}

/// Takes `cursor`; answers what was handed to [`cursor`].
///
/// # Errors
/// 400 `invalid_parameter` and `duplicate_parameter`.
pub fn take_cursor(params: &mut Params) -> ApiResult<Option<String>> {
    let Some(text) = params.one(&["cursor"])? else { return Ok(None) };
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| unknown_cursor())?;
    String::from_utf8(bytes).map(Some).map_err(|_| unknown_cursor())
}

/// The cursor of the page after this text: opaque to clients.
pub fn cursor(last: &str) -> String {
    BASE64URL_NOPAD.encode(last.as_bytes())
}

fn unknown_cursor() -> ApiError {
    ApiError::invalid_parameter("cursor", "this cursor is not one of ours")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(limit: usize, cursor: Option<&str>) -> Page {
        let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        Page::of_query(Some(&format!("limit={limit}{cursor}"))).expect("as it was written")
    }

    proptest! {
        /// Whatever goes between two pages, what stays is told once, in order.
        #[test]
        fn pages_tell_every_row_that_stays_once(
            rows in prop::collection::btree_set(("[a-d]{1,3}", any::<bool>()), 0..40),
            limit in 1_usize..6,
        ) {
            let (mut told, mut cursor) = (Vec::new(), None);
            let mut left: Vec<String> = rows.iter().map(|(name, stays)| format!("{name} {stays}")).collect();
            loop {
                let (range, next) = page(limit, cursor.as_deref()).cut(&left, String::clone).expect("a cursor of ours");
                prop_assert!(range.len() <= limit);
                prop_assert!(next.is_none() || range.len() == limit);
                told.extend(left[range].iter().cloned());
                let Some(next) = next else { break };
                // What the cursor names is gone before it is used.
                left.retain(|row| row.ends_with("true"));
                cursor = Some(next);
            }
            prop_assert!(told.is_sorted());
            told.retain(|row| row.ends_with("true"));
            let stay: Vec<String> = rows.iter().filter(|(_, stays)| *stays).map(|(name, _)| format!("{name} true")).collect();
            prop_assert_eq!(told, stay);
        }

        #[test]
        fn a_place_in_time_is_read_back(ms in any::<i64>(), name in any::<u32>()) {
            let place = (Timestamp::from_ms(ms), name);
            prop_assert_eq!(<(Timestamp, u32)>::read(&place.write()), Some(place));
        }
    }

    #[test]
    fn a_page_is_a_thousand_rows_where_nobody_says_and_no_cursor_is_guessed() {
        assert_eq!(Page::of_query(None).expect("fine"), Page { limit: 1_000, after: None });
        for wrong in [
            "limit=0",
            "limit=1001",
            "limit=x",
            "limit=1&limit=1",
            "cursor=%21",
            "cursor=_w",
            "cursor=a&cursor=a",
        ] {
            assert!(Page::of_query(Some(wrong)).is_err(), "{wrong}");
        }
        let foreign = page(1, Some(&BASE64URL_NOPAD.encode(b"no time")));
        assert!(foreign.cut(&[1_u32], |row| (Timestamp::from_ms(0), *row)).is_err());
    }
}
