//! Pagination of listings: `limit` and `cursor` in, `next_cursor` out (docs/specification.md C3,
//! C4, C8).
//!
//! A cursor is the sort key of the last row of a page. Even if that row is removed before the next
//! page is read, each remaining row is returned exactly once. A cursor is opaque to clients.

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

/// The greatest number of rows of a page, and the default.
pub const ROWS_MAX: usize = 1_000;

/// The unique key that a listing is sorted by.
pub trait SortKey: Ord + Sized {
    /// Writes the key for [`SortKey::read`].
    fn write(&self) -> String;
    /// Parses a key; `None` if [`SortKey::write`] did not write it.
    fn read(text: &str) -> Option<Self>;
}

/// The creation time and the id.
impl<I: Ord + Display + FromStr> SortKey for (Timestamp, I) {
    fn write(&self) -> String {
        format!("{} {}", self.0.as_ms(), self.1)
    }

    fn read(text: &str) -> Option<Self> {
        let (ms, name) = text.split_once(' ')?;
        Some((Timestamp::from_ms(ms.parse().ok()?), name.parse().ok()?))
    }
}

/// A number.
impl SortKey for u32 {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// A name.
impl SortKey for String {
    fn write(&self) -> String {
        self.clone()
    }

    fn read(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl SortKey for UserId {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl SortKey for OrgId {
    fn write(&self) -> String {
        self.0.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().map(OrgId)
    }
}

/// Descending order.
impl<P: SortKey> SortKey for Reverse<P> {
    fn write(&self) -> String {
        self.0.write()
    }

    fn read(text: &str) -> Option<Self> {
        P::read(text).map(Reverse)
    }
}

/// The page that a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    limit: usize,
    after: Option<String>,
}

impl PageRequest {
    /// Parses the query of a URL that has no other parameters.
    ///
    /// # Errors
    /// As [`PageRequest::take`].
    pub fn of_query(query: Option<&str>) -> ApiResult<PageRequest> {
        PageRequest::take(&mut Params::of_query(query)?)
    }

    /// Takes the parameters `limit` and `cursor`.
    ///
    /// # Errors
    /// 400 `invalid_parameter` and `duplicate_parameter`.
    pub fn take(params: &mut Params) -> ApiResult<PageRequest> {
        let limit = params.count("limit", 1, ROWS_MAX)?.unwrap_or(ROWS_MAX);
        Ok(PageRequest { limit, after: take_cursor(params)? })
    }

    /// Returns the range of this page in `rows`, which are sorted by `key`, and the cursor of the
    /// next page if there is one.
    ///
    /// # Errors
    /// 400 `invalid_parameter` for a cursor of another listing.
    pub fn cut<T, P: SortKey>(
        &self,
        rows: &[T],
        key: impl Fn(&T) -> P,
    ) -> ApiResult<(std::ops::Range<usize>, Option<String>)> {
        let after = self.after.as_deref().map(|text| P::read(text).ok_or_else(unknown_cursor)).transpose()?;
        let begin = after.map_or(0, |after| rows.partition_point(|row| key(row) <= after));
        let end = begin.saturating_add(self.limit).min(rows.len());
        let last = rows.get(begin..end).and_then(<[T]>::last).filter(|_| end < rows.len());
        Ok((begin..end, last.map(|row| cursor(&key(row).write()))))
    }

    /// Returns the response body: the page's rows below `data`, each as `to_json` renders it.
    ///
    /// # Errors
    /// As [`PageRequest::cut`].
    pub fn answer<T, P: SortKey>(
        &self,
        rows: &[T],
        key: impl Fn(&T) -> P,
        to_json: impl Fn(&T) -> Value,
    ) -> ApiResult<Json<Value>> {
        let (page, next) = self.cut(rows, key)?;
        let data: Vec<Value> = rows.get(page).unwrap_or_default().iter().map(to_json).collect();
        Ok(Json(json!({ "data": data, "next_cursor": next })))
    }
}

/// Takes the parameter `cursor` and decodes the text that [`cursor`] encoded.
///
/// # Errors
/// 400 `invalid_parameter` and `duplicate_parameter`.
pub fn take_cursor(params: &mut Params) -> ApiResult<Option<String>> {
    let Some(text) = params.one(&["cursor"])? else { return Ok(None) };
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| unknown_cursor())?;
    String::from_utf8(bytes).map(Some).map_err(|_| unknown_cursor())
}

/// Encodes the cursor of the page after this text.
pub fn cursor(last: &str) -> String {
    BASE64URL_NOPAD.encode(last.as_bytes())
}

fn unknown_cursor() -> ApiError {
    ApiError::invalid_parameter("cursor", "this server did not issue this cursor")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(limit: usize, cursor: Option<&str>) -> PageRequest {
        let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        PageRequest::of_query(Some(&format!("limit={limit}{cursor}"))).expect("as it was written")
    }

    proptest! {
        /// Rows may be removed between two pages. Rows that stay are returned once, in order.
        #[test]
        fn pages_return_every_row_that_stays_once(
            rows in prop::collection::btree_set(("[a-d]{1,3}", any::<bool>()), 0..40),
            limit in 1_usize..6,
        ) {
            let (mut returned, mut cursor) = (Vec::new(), None);
            let mut left: Vec<String> = rows.iter().map(|(name, stays)| format!("{name} {stays}")).collect();
            loop {
                let (range, next) = page(limit, cursor.as_deref()).cut(&left, String::clone).expect("a cursor of ours");
                prop_assert!(range.len() <= limit);
                prop_assert!(next.is_none() || range.len() == limit);
                returned.extend(left[range].iter().cloned());
                let Some(next) = next else { break };
                // The row that the cursor names may be removed before the cursor is used.
                left.retain(|row| row.ends_with("true"));
                cursor = Some(next);
            }
            prop_assert!(returned.is_sorted());
            returned.retain(|row| row.ends_with("true"));
            let stay: Vec<String> = rows.iter().filter(|(_, stays)| *stays).map(|(name, _)| format!("{name} true")).collect();
            prop_assert_eq!(returned, stay);
        }

        #[test]
        fn a_key_with_a_time_is_parsed_back(ms in any::<i64>(), name in any::<u32>()) {
            let key = (Timestamp::from_ms(ms), name);
            prop_assert_eq!(<(Timestamp, u32)>::read(&key.write()), Some(key));
        }
    }

    #[test]
    fn a_page_has_1000_rows_by_default_and_foreign_cursors_are_refused() {
        assert_eq!(PageRequest::of_query(None).expect("fine"), PageRequest { limit: 1_000, after: None });
        for wrong in [
            "limit=0",
            "limit=1001",
            "limit=x",
            "limit=1&limit=1",
            "cursor=%21",
            "cursor=_w",
            "cursor=a&cursor=a",
        ] {
            assert!(PageRequest::of_query(Some(wrong)).is_err(), "{wrong}");
        }
        let foreign = page(1, Some(&BASE64URL_NOPAD.encode(b"no time")));
        assert!(foreign.cut(&[1_u32], |row| (Timestamp::from_ms(0), *row)).is_err());
    }
}
