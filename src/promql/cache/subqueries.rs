//! What subqueries evaluate, among the kept answers.
//!
//! An entry is told from others by the text of what is evaluated and how far back its subquery looks. The text means the
//! same wherever it stands: those that ask for the range or the step of their query have none (see
//! [`MatrixSource::Subquery`](crate::promql::plan::MatrixSource)).

use crate::model::Access;
use crate::promql::plan::VectorNode;
use crate::promql::{Budget, MatrixSeries, Options};
use crate::tsdb::Snapshot;

use super::reach::{Reach, vector_has_parts};
use super::{ANSWER_SHARE, Asked, Found, Key, RangeCache, carries_types};

/// The kept subqueries that one caller may see.
#[derive(Debug)]
pub(in crate::promql) struct Subqueries<'c> {
    cache: &'c RangeCache,
    access: &'c Access,
}

/// What is asked for of a subquery.
pub(in crate::promql) struct AskedSubquery {
    key: Key,
    asked: Asked,
}

impl<'c> Subqueries<'c> {
    /// Those of whom a snapshot was taken for.
    pub(super) fn of(cache: &'c RangeCache, access: &'c Access) -> Subqueries<'c> {
        Subqueries { cache, access }
    }

    /// What is asked for: an expression and its text; how far back its subquery looks, and the first step, the last one and
    /// their distance. To be called before anything of it is read. None where nothing may be kept.
    pub(in crate::promql) fn ask(
        &self,
        (text, expr): (&str, &VectorNode),
        (back_ms, first_ms, last_ms, step_ms): (i64, i64, i64, i64),
        (snapshot, options): (&Snapshot, &Options),
    ) -> Option<AskedSubquery> {
        // Names that go at the end of the query are still there.
        let version = snapshot.version().filter(|_| !options.delayed_name_removal)?;
        let key = Key {
            org: self.access.org,
            text: text.to_owned(),
            scope: self.access.scope.series_key(),
            options: format!("{options:?}"),
            step_ms,
            phase_ms: first_ms.rem_euclid(step_ms),
            back_ms: Some(back_ms),
        };
        let asked = Asked {
            first_ms,
            last_ms,
            step_ms,
            version,
            floor_ms: snapshot.floor().as_ms(),
            reach: Reach::of_vector(expr, options),
            has_parts: vector_has_parts(expr, options),
        };
        Some(AskedSubquery { key, asked })
    }

    /// What is there of it.
    pub(in crate::promql) fn find(
        &self,
        asked: &AskedSubquery,
        snapshot: &Snapshot,
        budget: &Budget<'_>,
    ) -> Found {
        match self.cache.find(&asked.key, &asked.asked, snapshot) {
            Found::UpTo(..) if carries_types(snapshot, budget) => Found::Nothing,
            found => found,
        }
    }

    /// Whether so many rows of so many steps may be kept.
    pub(in crate::promql) fn admits(&self, rows: usize, steps: usize) -> bool {
        let bytes = (rows as u64).saturating_mul((steps as u64).saturating_mul(16));
        bytes <= self.cache.bytes_max / 2 / ANSWER_SHARE
    }

    /// Keeps what was computed for it without a remark; sorted by labels.
    pub(in crate::promql) fn keep(
        &self,
        asked: AskedSubquery,
        (snapshot, budget): (&Snapshot, &Budget<'_>),
        series: &[MatrixSeries],
    ) {
        if !carries_types(snapshot, budget) {
            self.cache.keep(asked.key, &asked.asked, snapshot, series);
        }
    }

    /// Counts one that was there.
    pub(in crate::promql) fn hit(&self) {
        self.cache.of_subqueries.hit();
    }

    /// Counts one that was there in part.
    pub(in crate::promql) fn extended(&self) {
        self.cache.of_subqueries.extended();
    }

    /// Counts one that was computed whole.
    pub(in crate::promql) fn missed(&self) {
        self.cache.of_subqueries.missed();
    }
}
