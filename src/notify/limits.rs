//! The limits of notifications, each per organisation unless its description says otherwise. All
//! are inclusive.

/// The most bytes of a configuration as JSON.
pub const DOCUMENT_BYTES_MAX: usize = 512 << 10;
/// The most receivers.
pub const RECEIVERS_MAX: usize = 100;
/// The most integrations (addresses, webhooks, topics, channels) of all receivers.
pub const INTEGRATIONS_MAX: usize = 200;
/// The most recipients of one mail integration.
pub const RECIPIENTS_MAX: usize = 16;
/// The most routes of the tree, its root included.
pub const ROUTES_MAX: usize = 200;
/// The most routes on a path through the tree.
pub const ROUTE_DEPTH_MAX: usize = 16;
/// The most matchers of a route, of an inhibition rule's side, or of a silence.
pub const MATCHERS_MAX: usize = 32;
/// The most bytes of a matcher's value.
pub const MATCHER_BYTES_MAX: usize = 1_024;
/// The most inhibition rules.
pub const INHIBIT_RULES_MAX: usize = 50;
/// The most named time intervals, and the most ranges of one.
pub const TIME_INTERVALS_MAX: usize = 64;
/// The most Alertmanagers that a configuration names.
pub const ALERTMANAGERS_MAX: usize = 16;
/// The most Alertmanagers in use, those found in files included.
pub const ALERTMANAGERS_ACTIVE_MAX: usize = 32;
/// The most silences, expired ones included.
pub const SILENCES_MAX: usize = 1_000;
/// The most bytes of the author or the comment of a silence or an acknowledgement.
pub const COMMENT_BYTES_MAX: usize = 1_024;
/// The most alerts that fire or wait to be reported as resolved.
pub const ALERTS_MAX: usize = 10_000;
/// The most bytes of one alert's labels and annotations.
pub const ALERT_BYTES_MAX: usize = 32 << 10;
/// The most bytes of the labels and annotations of all alerts.
pub const ALERTS_BYTES_MAX: usize = 16 << 20;
/// The most bytes of the compiled matchers of a configuration, and of all silences.
pub const MATCHERS_MEMORY_MAX: usize = 8 << 20;
/// The most tests of a silence against an alert in one step; the rest follows in the next one.
pub const STEP_TESTS_MAX: usize = 500_000;
/// The most labels, and the most annotations, of an alert.
pub const ALERT_PAIRS_MAX: usize = 64;
/// The most groups.
pub const GROUPS_MAX: usize = 10_000;
/// The most alerts in groups; an alert that several routes match counts once for each.
pub const MEMBERSHIPS_MAX: usize = 40_000;
/// The most alerts in one notification.
pub const MESSAGE_ALERTS_MAX: usize = 200;
/// The most bytes of labels and annotations in one notification.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The most alerts that wait for one Alertmanager.
pub const AM_QUEUED_MAX: usize = 10_000;
/// The most alerts in one request to an Alertmanager.
pub const AM_BATCH_MAX: usize = 256;
/// The most bytes of a file of targets.
pub const TARGETS_FILE_BYTES_MAX: usize = 1 << 20;
/// The most alerts that wait between the evaluation of rules and the notifier.
pub const INBOX_MAX: usize = 20_000;
/// The most tests of a receiver in an hour.
pub const TESTS_PER_HOUR_MAX: u32 = 20;
/// The most requests to one integration at once.
pub const IN_FLIGHT_MAX: usize = 2;
