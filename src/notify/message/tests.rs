//! The forms of notifications.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::TargetSecret;

fn labels(pairs: &[(&str, &str)]) -> AlertLabels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn alert<'m>(
    labels: &'m AlertLabels,
    annotations: &'m AlertLabels,
    ended_at: Option<Timestamp>,
) -> MessageAlert<'m> {
    MessageAlert {
        fingerprint: AlertFingerprint::of(labels),
        labels,
        annotations,
        starts_at: Timestamp::from_s(1_795_781_400),
        ended_at,
        generator_url: "http://p/graph?expr=up".to_owned(),
    }
}

fn view<'m>(group: &'m AlertLabels, alerts: Vec<MessageAlert<'m>>) -> MessageView<'m> {
    MessageView {
        receiver: "team",
        group_key: "{}:{alertname=\"Down\"}",
        group_labels: group,
        alerts,
        truncated: 3,
        external_url: "http://p/alerts",
        delivery: "00ff".to_owned(),
        now: Timestamp::from_s(1_795_781_500),
    }
}

#[test]
fn a_webhook_gets_the_json_of_alertmanager_version_4() {
    let (a, b) = (
        labels(&[("alertname", "Down"), ("job", "x"), ("instance", "1")]),
        labels(&[("alertname", "Down"), ("job", "x"), ("instance", "2")]),
    );
    let (notes, none) = (labels(&[("summary", "It is down")]), labels(&[]));
    let group = labels(&[("alertname", "Down")]);
    let end = Timestamp::from_s(1_795_781_450);
    let view = view(&group, vec![alert(&a, &notes, None), alert(&b, &none, Some(end))]);
    let expected = json!({
        "version": "4",
        "groupKey": "{}:{alertname=\"Down\"}",
        "truncatedAlerts": 3,
        "status": "firing",
        "receiver": "team",
        "groupLabels": { "alertname": "Down" },
        "commonLabels": { "alertname": "Down", "job": "x" },
        "commonAnnotations": {},
        "externalURL": "http://p/alerts",
        "alerts": [
            {
                "status": "firing",
                "labels": { "alertname": "Down", "job": "x", "instance": "1" },
                "annotations": { "summary": "It is down" },
                "startsAt": "2026-11-27T12:10:00Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://p/graph?expr=up",
                "fingerprint": AlertFingerprint::of(&a).to_string(),
            },
            {
                "status": "resolved",
                "labels": { "alertname": "Down", "job": "x", "instance": "2" },
                "annotations": {},
                "startsAt": "2026-11-27T12:10:00Z",
                "endsAt": "2026-11-27T12:10:50Z",
                "generatorURL": "http://p/graph?expr=up",
                "fingerprint": AlertFingerprint::of(&b).to_string(),
            },
        ],
    });
    assert_eq!(webhook::body(&view), expected);
}

#[test]
fn the_signature_covers_timestamp_and_body() {
    // Computed with another implementation of HMAC-SHA-256.
    let expected = "v1=53a8201e71f6acd19a2d769aeae43b4a2a0aab8a62dd33ce6269c1abf11d7aa3";
    let signature = sign_webhook("a secret key", 1_795_781_500, b"{}").expect("a key");
    assert_eq!(signature, expected);
    assert_ne!(sign_webhook("a secret key", 1_795_781_501, b"{}"), Some(signature.clone()));
    assert_ne!(sign_webhook("a secret key", 1_795_781_500, b"{ }"), Some(signature.clone()));
    assert_ne!(sign_webhook("another key", 1_795_781_500, b"{}"), Some(signature.clone()));
    let group = labels(&[]);
    let headers = webhook::headers(Some(&TargetSecret::new("a secret key")), &view(&group, vec![]), b"{}");
    assert_eq!(headers[1], ("x-promlet-timestamp", "1795781500".to_owned()));
    assert_eq!(headers[2], ("x-promlet-signature", signature));
    assert_eq!(webhook::headers(None, &view(&group, vec![]), b"{}").len(), 2);
}

#[test]
fn ntfy_and_slack_get_their_forms() {
    let a = labels(&[("alertname", "Down"), ("job", "<x>")]);
    let notes = labels(&[("summary", "a & b")]);
    let group = labels(&[("alertname", "Down"), ("job", "<x>")]);
    let firing = view(&group, vec![alert(&a, &notes, None)]);
    let body = ntfy::body("ops", 5, &firing);
    assert_eq!(body["title"], "[FIRING:1] Down (<x>)");
    assert_eq!(body["message"], "firing: a & b\nand 3 more");
    assert_eq!((&body["priority"], &body["topic"]), (&json!(5), &json!("ops")));
    let body = slack::body(Some("#ops"), None, &firing);
    assert_eq!(body["text"], "[FIRING:1] Down (&lt;x&gt;)");
    assert_eq!(body["attachments"][0]["text"], "firing: a &amp; b\nand 3 more");
    assert_eq!(body["channel"], "#ops");
    assert!(body.get("username").is_none());
    let resolved = view(&group, vec![alert(&a, &notes, Some(Timestamp::from_s(1_795_781_450)))]);
    assert_eq!(ntfy::body("ops", 5, &resolved)["priority"], 3);
    assert_eq!(slack::body(None, None, &resolved)["attachments"][0]["color"], "good");
}

#[test]
fn a_mail_lists_each_alert() {
    let a = labels(&[("alertname", "Down"), ("job", "x")]);
    let notes = labels(&[("summary", "first\r\nBcc: second")]);
    let group = labels(&[("alertname", "Down\r\nBcc: a@b")]);
    let view = view(&group, vec![alert(&a, &notes, None)]);
    let mail = mail::mail("ada@example.org", &view);
    assert_eq!(mail.subject, "[FIRING:1] Down");
    assert!(mail.text.contains("Down: firing since 2026-11-27T12:10:00Z"), "{}", mail.text);
    assert!(mail.text.contains("  summary: first  Bcc: second\n"), "{}", mail.text);
    assert!(!format!("{mail:?}").contains("ada"));
}

proptest! {
    #[test]
    fn a_title_is_one_short_line(name in "\\PC{0,300}|[\r\n\t]{0,9}", value in "\\PC{0,300}|[\r\n]{0,9}") {
        let a = labels(&[("alertname", &name), ("x", &value)]);
        let none = labels(&[]);
        let view = view(&a, vec![alert(&a, &none, None)]);
        let mail = mail::mail("a@b", &view);
        prop_assert!(mail.subject.chars().count() <= 200);
        prop_assert!(!mail.subject.chars().any(char::is_control));
    }
}
