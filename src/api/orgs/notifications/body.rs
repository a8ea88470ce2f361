//! Silences as they are sent, in the form of Alertmanager's API.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::api::error::{ApiError, ApiResult};
use crate::model::Timestamp;
use crate::notify::matcher::AlertMatchers;
use crate::notify::org::OrgNotifier;
use crate::notify::silence::{AlertSilence, NewSilence};

/// A silence. Fields that [`AlertSilence::to_json`] adds are accepted and ignored.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SilenceBody {
    /// The silence that this one changes, in requests of Alertmanager's API.
    pub(super) id: Option<String>,
    matchers: Vec<Value>,
    #[serde(rename = "startsAt")]
    starts_at: Option<String>,
    #[serde(rename = "endsAt")]
    ends_at: String,
    #[serde(rename = "createdBy")]
    created_by: Option<String>,
    pub(super) comment: Option<String>,
    #[serde(rename = "updatedAt")]
    _updated_at: Option<Value>,
    #[serde(rename = "status")]
    _status: Option<Value>,
}

fn time(field: &'static str, text: &str) -> ApiResult<Timestamp> {
    let wrong =
        || ApiError::invalid_field(field, "invalid", "a time such as 2026-11-27T12:00:00Z is expected");
    Timestamp::from_rfc3339(text).ok_or_else(wrong)
}

impl SilenceBody {
    /// Creates the silence, or changes the one with this id. Returns the id of the resulting
    /// silence.
    pub(super) fn store(
        self,
        id: Option<&str>,
        notifier: &mut OrgNotifier,
        author: &str,
        now: Timestamp,
    ) -> ApiResult<Arc<str>> {
        let new = self.silence(author, id.and_then(|id| notifier.silence(id)), now)?;
        Ok(notifier.set_silence(id, new, now)?)
    }

    /// Returns the silence. A missing author is `author`, a missing start that of `stored`, or now.
    fn silence(self, author: &str, stored: Option<&AlertSilence>, now: Timestamp) -> ApiResult<NewSilence> {
        let wrong = |message| ApiError::invalid_field("matchers", "invalid", message);
        let mut matchers = AlertMatchers::default();
        for one in &self.matchers {
            matchers.push_value(one).map_err(wrong)?;
        }
        let start = self.starts_at.as_deref().map(|text| time("startsAt", text)).transpose()?;
        Ok(NewSilence {
            matchers,
            starts_at: start.or(stored.map(|stored| stored.starts_at)).unwrap_or(now),
            ends_at: time("endsAt", &self.ends_at)?,
            created_by: self.created_by.filter(|text| !text.is_empty()).unwrap_or_else(|| author.to_owned()),
            comment: self.comment.unwrap_or_default(),
        })
    }
}
