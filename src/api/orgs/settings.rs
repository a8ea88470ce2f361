//! The settings of an organisation (docs/specification.md C3): their parsing, the server's
//! defaults, and their application to the store of samples. The limits of queries are looked up
//! when a query arrives ([`Quota`](crate::api::callers::Quota)).

use std::time::Duration;

use serde_json::{Map, Value};

use super::query::ReadOptions;
use crate::api::error::{ApiError, ApiResult};
use crate::identity::{Identity, Limit, OrgChange, OrgSettings, Setting, StoreError};
use crate::model::OrgId;
use crate::tsdb::{OrgLimits, Tsdb};

/// The greatest number of a setting, 2^53. Every JSON reader reads whole numbers up to it exactly.
const NUMBER_MAX: u64 = 1 << 53;
/// The seconds of a day.
const DAY_S: u64 = 86_400;

/// Parses the field `settings` of a PATCH. `null` stands for the server's default, `"none"` for no
/// limit.
///
/// # Errors
/// 422 `validation_failed` with all invalid fields.
pub fn from_json(sent: &Map<String, Value>) -> ApiResult<OrgChange> {
    let mut read = OrgChange::default();
    let mut refused: Option<ApiError> = None;
    for (name, value) in sent {
        let shown = crate::api::params::shortened(name);
        let field = format!("settings.{shown}");
        let parsed = match name.as_str() {
            PUBLIC_LINKS => switch(value).map(|on| read.public_links = Some(on)),
            _ => one(name, value).map(|setting| read.settings.push(setting)),
        };
        match parsed {
            Ok(()) => {}
            Err((code, message)) => {
                let error = refused.take().unwrap_or_else(|| {
                    let detail = format!("{field}: {message}");
                    ApiError::new(crate::api::error::Code::ValidationFailed, detail)
                });
                refused = Some(error.with_field(field, code, message));
            }
        }
    }
    refused.map_or(Ok(read), Err)
}

/// The setting that allows public links of dashboards. `null` turns it off, as the default does.
const PUBLIC_LINKS: &str = "public_links";

fn switch(value: &Value) -> Result<bool, (&'static str, String)> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(on) => Ok(*on),
        _ => Err(("form", "must be true, false or null".to_owned())),
    }
}

fn one(name: &str, value: &Value) -> Result<(Setting, Limit), (&'static str, String)> {
    let setting = Setting::ALL.iter().copied().find(|setting| setting.as_str() == name);
    let setting = setting.ok_or_else(|| ("unknown", "there is no such setting".to_owned()))?;
    let (least, most) = bounds(setting);
    let limit = match value {
        Value::Null => Limit::Default,
        Value::String(text) if text == "none" => Limit::Unlimited,
        value => {
            let number = value.as_u64().filter(|number| (least..=most).contains(number));
            let form =
                || ("form", format!("must be a whole number from {least} to {most}, \"none\" or null"));
            Limit::At(number.ok_or_else(form)?)
        }
    };
    Ok((setting, limit))
}

/// Returns the least and the greatest number of a setting, inclusive. Numbers with which nothing
/// would work are refused as mistakes.
const fn bounds(setting: Setting) -> (u64, u64) {
    match setting {
        Setting::RetentionDays => (1, 100_000),
        Setting::MaxNewSeriesPerS => (1, u32::MAX as u64),
        Setting::MaxDiskBytes | Setting::MaxMemoryBytes | Setting::RetentionBytes => (1 << 20, NUMBER_MAX),
        Setting::OooWindowS => (0, NUMBER_MAX),
        _ => (1, NUMBER_MAX),
    }
}

/// Returns the server's defaults. Only an administrator of the server may exceed them.
pub fn defaults(read: &ReadOptions, store: &OrgLimits) -> OrgSettings {
    let at = |number: usize| Limit::At(number as u64);
    let or_none = |number: Option<u64>| number.map_or(Limit::Unlimited, Limit::At);
    let days = |age: Duration| age.as_secs().div_ceil(DAY_S);
    OrgSettings {
        retention_days: or_none(store.retention.map(days)),
        retention_bytes: or_none(store.retention_bytes),
        max_new_series_per_s: or_none(store.new_series_per_s.map(u64::from)),
        max_disk_bytes: or_none(store.disk_bytes_max),
        // The share of the process' memory limits an organisation in any case.
        max_memory_bytes: or_none(store.memory_bytes_max),
        ooo_window_s: or_none(store.ooo_window.map(|window| window.as_secs())),
        max_series: match store.series_max {
            u32::MAX => Limit::Unlimited,
            most => Limit::At(most.into()),
        },
        max_labels: at(store.labels_max),
        max_label_value_bytes: at(store.value_bytes_max),
        max_samples_per_query: Limit::At(read.promql.limits.samples_max),
        query_timeout_s: Limit::At(read.timeout.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX)),
        public_links: false,
    }
}

/// Returns the limits of an organisation in the store of samples.
fn store_limits(settings: &OrgSettings, default: &OrgLimits) -> OrgLimits {
    let size = |limit: Limit, default: usize| {
        limit.or(Some(default as u64)).map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
    };
    let series_max = settings.max_series.or(Some(default.series_max.into()));
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let age = |days: u64| Duration::from_secs(days.saturating_mul(DAY_S));
    OrgLimits {
        series_max: series_max.map_or(u32::MAX, small),
        labels_max: size(settings.max_labels, default.labels_max),
        value_bytes_max: size(settings.max_label_value_bytes, default.value_bytes_max),
        retention: match settings.retention_days {
            Limit::Default => default.retention,
            Limit::Unlimited => None,
            Limit::At(days) => Some(age(days)),
        },
        retention_bytes: settings.retention_bytes.or(default.retention_bytes),
        new_series_per_s: settings
            .max_new_series_per_s
            .or(default.new_series_per_s.map(u64::from))
            .map(small),
        memory_bytes_max: settings.max_memory_bytes.or(default.memory_bytes_max),
        disk_bytes_max: settings.max_disk_bytes.or(default.disk_bytes_max),
        ooo_window: match settings.ooo_window_s {
            Limit::Default => default.ooo_window,
            Limit::Unlimited => None,
            Limit::At(seconds) => Some(Duration::from_secs(seconds)),
        },
        ..default.clone()
    }
}

/// Returns the limits of an organisation in the store of samples, as its settings say.
pub fn limits_of(identity: &Identity, tsdb: &Tsdb, org: OrgId) -> OrgLimits {
    store_limits(&identity.org_settings(org), tsdb.default_limits())
}

/// Applies one organisation's settings to the store of samples.
pub fn apply(identity: &Identity, tsdb: &Tsdb, org: OrgId) {
    tsdb.set_limits(org, limits_of(identity, tsdb, org));
}

/// Applies the settings of all organisations to the store of samples. The server calls it once,
/// after it has opened the accounts and the store.
///
/// # Errors
/// [`StoreError`].
pub fn apply_settings(identity: &Identity, tsdb: &Tsdb) -> Result<(), StoreError> {
    for org in identity.orgs()? {
        if org.settings != OrgSettings::default() {
            tsdb.set_limits(org.id, store_limits(&org.settings, tsdb.default_limits()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::views::org::settings_json;

    #[test]
    fn unset_settings_and_the_defaults_keep_the_limits_of_the_store() {
        let read = ReadOptions::default();
        let configured = OrgLimits {
            retention: Some(Duration::from_secs(90 * DAY_S)),
            retention_bytes: Some(1),
            ooo_window: Some(Duration::from_secs(2)),
            new_series_per_s: Some(3),
            memory_bytes_max: Some(4),
            disk_bytes_max: Some(5),
            ..OrgLimits::default()
        };
        for limits in [OrgLimits::default(), configured] {
            assert_eq!(store_limits(&OrgSettings::default(), &limits), limits);
            assert_eq!(store_limits(&defaults(&read, &limits), &limits), limits);
            let from_settings = store_limits(&defaults(&read, &limits), &OrgLimits::default());
            assert_eq!(from_settings, limits, "every limit has a setting");
        }
        assert_eq!(defaults(&read, &OrgLimits::default()).query_timeout_s, Limit::At(30));
    }

    #[test]
    fn limits_of_series_and_bytes_are_a_quota_and_others_are_not() {
        assert!(!OrgLimits::default().has_quota());
        for setting in Setting::ALL {
            let settings = OrgSettings::default().with(*setting, Limit::At(7));
            let found = store_limits(&settings, &OrgLimits::default()).has_quota();
            let expected = matches!(
                setting,
                Setting::MaxSeries
                    | Setting::MaxNewSeriesPerS
                    | Setting::RetentionBytes
                    | Setting::MaxDiskBytes
                    | Setting::MaxMemoryBytes
            );
            assert_eq!(found, expected, "{}", setting.as_str());
        }
    }

    #[test]
    fn numbers_are_applied_to_the_store_and_the_largest_are_clamped() {
        let all = |limit: Limit| {
            Setting::ALL.iter().fold(OrgSettings::default(), |settings, one| settings.with(*one, limit))
        };
        let of = |limit: Limit| store_limits(&all(limit), &OrgLimits::default());
        let seven = of(Limit::At(7));
        assert_eq!((seven.series_max, seven.labels_max, seven.value_bytes_max), (7, 7, 7));
        assert_eq!(seven.retention, Some(Duration::from_secs(7 * 86_400)));
        assert_eq!((seven.ooo_window, seven.new_series_per_s), (Some(Duration::from_secs(7)), Some(7)));
        let sizes = [seven.retention_bytes, seven.memory_bytes_max, seven.disk_bytes_max];
        assert_eq!(sizes, [Some(7); 3]);
        let most = of(Limit::At(u64::MAX));
        assert_eq!((most.series_max, most.new_series_per_s), (u32::MAX, Some(u32::MAX)));
        let unlimited = of(Limit::Unlimited);
        let sizes = (unlimited.series_max, unlimited.labels_max, unlimited.retention);
        assert_eq!(sizes, (u32::MAX, usize::MAX, None));
        let others = (unlimited.ooo_window, unlimited.new_series_per_s, unlimited.disk_bytes_max);
        assert_eq!(others, (None, None, None));
    }

    #[test]
    fn shown_settings_can_be_sent_back() {
        let settings = OrgSettings {
            max_series: Limit::At(5),
            retention_days: Limit::Unlimited,
            public_links: true,
            ..OrgSettings::default()
        };
        let Value::Object(shown) = settings_json(&settings) else { panic!("an object") };
        assert_eq!(shown.len(), 12);
        let read = from_json(&shown).expect("as shown");
        let start = OrgSettings { public_links: read.public_links == Some(true), ..OrgSettings::default() };
        let again = read.settings.into_iter().fold(start, |all, (one, limit)| all.with(one, limit));
        assert_eq!(again, settings);
    }

    #[test]
    fn all_invalid_settings_are_reported_at_once() {
        let sent = json!({ "max_serie": 1, "max_series": 0, "max_labels": -1, "query_timeout_s": 1.5,
            "max_disk_bytes": 5, "retention_days": "never", "ooo_window_s": 0, "max_samples_per_query": 9, "public_links": 1 });
        let Value::Object(sent) = sent else { panic!("an object") };
        let body = from_json(&sent).expect_err("refused");
        assert!(body.detail().starts_with("settings."), "{}", body.detail());
        let text = format!("{body:?}");
        for (field, code) in [
            ("max_serie", "unknown"),
            ("max_series", "form"),
            ("max_labels", "form"),
            ("query_timeout_s", "form"),
            ("max_disk_bytes", "form"),
            ("retention_days", "form"),
            ("public_links", "form"),
        ] {
            assert!(text.contains(&format!("\"settings.{field}\", code: \"{code}\"")), "{field}: {text}");
        }
        assert!(!text.contains("settings.max_samples_per_query") && !text.contains("settings.ooo_window_s"));
    }
}
