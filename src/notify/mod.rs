//! Notifications of alerts.
