//! Documents: wrong fields have a path, and secrets are write-only.

use proptest::prelude::*;

use super::*;

fn parse(value: &Value) -> Result<NotifyDocument, Vec<FieldProblem>> {
    NotifyDocument::parse(&value.to_string(), None, &mut Entropy::seeded(1))
}

fn full() -> Value {
    json!({
        "alertmanagers": [
            { "id": "am", "url": "https://am:9093", "path_prefix": "/x/",
              "auth": { "type": "basic", "username": "u", "password": "pass-1" } },
            { "id": "file", "file": "am.yml", "scheme": "https" },
        ],
        "route": {
            "receiver": "team", "group_by": ["alertname"], "group_wait": "10s",
            "routes": [
                { "matchers": ["severity=\"page\""], "receiver": "pager", "continue": true,
                  "mute_time_intervals": ["nights"], "routes": [{ "matchers": ["a=b"], "group_by": ["..."] }] },
                { "matchers": [{ "name": "severity", "value": "page|ticket", "isRegex": true }] },
            ],
        },
        "receivers": [
            { "name": "team", "email_configs": [{ "id": "mail", "to": ["a@example.org", "b@example.org"] }] },
            { "name": "pager",
              "webhook_configs": [{ "id": "hook", "url": "http://h/x", "secret": "a secret key",
                                    "headers": { "X-Key": "header-1" }, "max_alerts": 5 }],
              "ntfy_configs": [{ "id": "ntfy", "url": "https://ntfy", "topic": "ops",
                                 "auth": { "type": "bearer", "token": "token-1" } }],
              "slack_configs": [{ "id": "slack", "url": "https://s/secret-path" }] },
        ],
        "time_intervals": [
            { "name": "nights", "time_intervals": [
                { "times": [{ "start_time": "22:00", "end_time": "24:00" }], "location": "Europe/Berlin" }] },
        ],
        "inhibit_rules": [
            { "source_matchers": ["severity=page"], "target_matchers": ["severity=ticket"], "equal": ["job"] },
        ],
    })
}

#[test]
fn a_document_is_read() {
    let document = parse(&full()).unwrap_or_else(|problems| panic!("{problems:?}"));
    let config = document.config();
    assert_eq!(config.alertmanagers[0].path_prefix, "/x");
    let ids: Vec<&str> = config.integrations.iter().map(|one| &*one.id).collect();
    assert_eq!(ids, ["mail/a@example.org", "mail/b@example.org", "hook", "ntfy", "slack"]);
    let keys: Vec<&str> = config.routes.iter().map(|route| route.key.as_str()).collect();
    assert_eq!(keys[..2], ["{}", "{}/{severity=\"page\"}"]);
    assert_eq!(config.routes[2].group_by, GroupBy::All);
    assert_eq!(config.routes[2].times.group_wait_ms, 10_000, "inherited");
    assert_eq!(config.routes[2].receiver, 1, "inherited");
    assert!(config.routes[2].mute.is_empty(), "not inherited, as in Alertmanager");
    let again = NotifyDocument::from_stored(&document.stored_text()).expect("valid");
    assert_eq!(again.config(), config);
}

#[test]
fn alerts_take_the_routes_of_alertmanager() {
    let document = parse(&full()).expect("valid");
    let routes = |pairs: &[(&str, &str)]| {
        let labels = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        document.config().routes_of(&labels)
    };
    assert_eq!(routes(&[("severity", "page")]), [1, 3]);
    assert_eq!(routes(&[("severity", "page"), ("a", "b")]), [2, 3]);
    assert_eq!(routes(&[("severity", "ticket")]), [3]);
    assert_eq!(routes(&[("x", "y")]), [0]);
}

#[test]
fn wrong_fields_have_a_path_and_the_nearest_name() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str, &str); 14] = [
        (|d| d["recievers"] = json!([]), "recievers", "did you mean \"receivers\""),
        (|d| d["route"]["routes"][0]["reciever"] = json!("x"), "route.routes[0].reciever", "receiver"),
        (|d| d["route"]["routes"][0]["receiver"] = json!("pagr"), "route.routes[0].receiver", "\"pager\""),
        (|d| d["route"]["group_wait"] = json!("10x"), "route.group_wait", ""),
        (|d| d["route"]["group_interval"] = json!("0s"), "route.group_interval", "from 1s"),
        (
            |d| d["route"]["routes"][1]["matchers"] = json!(["a=~\"(\""]),
            "route.routes[1].matchers[0]",
            "regexp",
        ),
        (|d| d["route"]["matchers"] = json!(["a=b"]), "route.matchers", "root"),
        (|d| d["receivers"][1]["name"] = json!("team"), "receivers[1].name", "twice"),
        (
            |d| d["receivers"][0]["email_configs"][0]["to"] = json!(["x"]),
            "receivers[0].email_configs[0].to[0]",
            "address",
        ),
        (
            |d| d["receivers"][1]["webhook_configs"][0]["url"] = json!("ftp://x"),
            "receivers[1].webhook_configs[0].url",
            "http",
        ),
        (
            |d| d["receivers"][1]["ntfy_configs"][0]["id"] = json!("hook"),
            "receivers[1].ntfy_configs[0].id",
            "twice",
        ),
        (|d| d["alertmanagers"][1]["file"] = json!("../x.yml"), "alertmanagers[1].file", "name of a"),
        (
            |d| d["time_intervals"][0]["time_intervals"][0]["location"] = json!("Berlin"),
            "time_intervals[0].time_intervals[0].location",
            "Europe/Berlin",
        ),
        (
            |d| d["inhibit_rules"][0]["source_matchers"] = json!([]),
            "inhibit_rules[0].source_matchers",
            "matcher",
        ),
    ];
    for (change, path, text) in cases {
        let mut document = full();
        change(&mut document);
        let problems = parse(&document).expect_err(path);
        let found = problems.iter().find(|problem| problem.path == path);
        let found = found.unwrap_or_else(|| panic!("{path}: {problems:?}"));
        assert!(found.message.contains(text), "{path}: {}", found.message);
    }
}

#[test]
fn secrets_are_write_only_and_kept_by_id_and_not_by_position() {
    let stored = parse(&full()).expect("valid");
    let public = stored.public();
    let text = public.to_string();
    for secret in ["pass-1", "a secret key", "header-1", "token-1", "secret-path"] {
        assert!(!text.contains(secret), "{secret}");
        assert!(stored.stored_text().contains(secret), "{secret}");
    }
    // The configuration without a change.
    let again =
        |value: &Value| NotifyDocument::parse(&value.to_string(), Some(&stored), &mut Entropy::seeded(2));
    assert_eq!(again(&public).expect("valid").config(), stored.config());
    // Another integration before it, and receivers in another order.
    let mut moved = public.clone();
    let hooks = moved["receivers"][1]["webhook_configs"].as_array_mut().expect("a list");
    hooks.insert(0, json!({ "id": "new", "url": "http://other/" }));
    moved["receivers"].as_array_mut().expect("a list").reverse();
    let kept = again(&moved).expect("valid");
    let secret =
        |id: &str| match &kept.config().integrations.iter().find(|one| &*one.id == id).expect(id).kind {
            IntegrationKind::Webhook { secret, .. } => {
                secret.as_ref().map(|secret| secret.reveal().to_owned())
            }
            other => panic!("{other:?}"),
        };
    assert_eq!(secret("hook").as_deref(), Some("a secret key"));
    assert_eq!(secret("new"), None);
}

#[test]
fn a_document_with_a_removed_secret_is_stored_again_as_it_is_shown() {
    let mut document = full();
    document["receivers"][1]["webhook_configs"][0]["secret"] = Value::Null;
    let read = parse(&document).expect("valid");
    let hook = &read.public()["receivers"][1]["webhook_configs"][0];
    assert!(hook.get("secret").is_none() && hook.get("has_secret").is_none(), "{hook}");
    let again = NotifyDocument::parse(&read.public().to_string(), Some(&read), &mut Entropy::seeded(2));
    assert_eq!(again.expect("valid").config(), read.config());
}

#[test]
fn a_secret_is_never_sent_to_another_server() {
    let stored = parse(&full()).expect("valid");
    let again =
        |value: &Value| NotifyDocument::parse(&value.to_string(), Some(&stored), &mut Entropy::seeded(2));
    let mut moved = stored.public();
    moved["receivers"][1]["webhook_configs"][0]["url"] = json!("http://evil/x");
    moved["receivers"][1]["ntfy_configs"][0]["url"] = json!("https://evil");
    let problems = again(&moved).expect_err("secrets are missing");
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    let expected = [
        "receivers[1].webhook_configs[0].secret",
        "receivers[1].webhook_configs[0].headers.X-Key",
        "receivers[1].ntfy_configs[0].auth.token",
    ];
    assert_eq!(paths, expected);
    // An id of another kind of integration gives no secret.
    let mut other = json!({ "receivers": [{ "name": "r", "webhook_configs": [
        { "id": "ntfy", "url": "https://ntfy", "auth": { "type": "bearer" } }] }] });
    assert!(again(&other).is_err());
    other["receivers"][0]["webhook_configs"][0]["auth"]["token"] = json!("given");
    assert!(again(&other).is_ok());
}

#[test]
fn documents_are_bounded() {
    let text = format!("{{\"x\": \"{}\"}}", "a".repeat(DOCUMENT_BYTES_MAX));
    assert!(NotifyDocument::parse(&text, None, &mut Entropy::seeded(1)).is_err());
    let deep = (0..100)
        .fold(json!({ "matchers": ["a=b"] }), |inner, _| json!({ "matchers": ["a=b"], "routes": [inner] }));
    let mut document = full();
    document["route"]["routes"] = json!([deep]);
    assert!(parse(&document).is_err(), "a deep tree");
    let many: Vec<Value> = (0..300).map(|_| json!({ "matchers": ["a=b"] })).collect();
    document["route"]["routes"] = json!(many);
    assert!(parse(&document).is_err(), "many routes");
    let hooks: Vec<Value> = (0..201).map(|n| json!({ "id": n.to_string(), "url": "http://x" })).collect();
    let document = json!({ "receivers": [{ "name": "r", "webhook_configs": hooks }] });
    assert!(parse(&document).is_err(), "many integrations");
}

proptest! {
    #[test]
    fn no_document_makes_the_reader_panic(
        path in 0_usize..400,
        value in prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("x")), Just(json!([])), Just(json!({})), Just(json!([{}])), Just(json!([[1]]))],
    ) {
        // Replaces one value of a valid document, found by its number.
        fn replace(node: &mut Value, left: &mut usize, value: &Value) {
            if *left == 0 {
                *node = value.clone();
            }
            *left = left.wrapping_sub(1);
            match node {
                Value::Array(list) => list.iter_mut().for_each(|node| replace(node, left, value)),
                Value::Object(map) => map.values_mut().for_each(|node| replace(node, left, value)),
                _ => {}
            }
        }
        let mut document = full();
        let mut left = path;
        replace(&mut document, &mut left, &value);
        if let Ok(read) = parse(&document) {
            let again = NotifyDocument::parse(&read.public().to_string(), Some(&read), &mut Entropy::seeded(3));
            prop_assert_eq!(again.map(|again| Arc::clone(again.config())).ok(), Some(Arc::clone(read.config())));
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,64}") {
        let _ = NotifyDocument::parse(&text, None, &mut Entropy::seeded(1));
    }
}

#[test]
fn the_memory_of_all_patterns_is_bounded() {
    let pattern = format!("a=~\"{}\"", "[a-z]+[0-9]+x?".repeat(60));
    let matchers: Vec<&str> = vec![&pattern; 32];
    let routes: Vec<Value> = (0..100).map(|_| json!({ "matchers": matchers })).collect();
    let document = json!({
        "route": { "receiver": "r", "routes": routes }, "receivers": [{ "name": "r" }],
    });
    let problems = match NotifyDocument::parse(&document.to_string(), None, &mut Entropy::seeded(1)) {
        Ok(_) => panic!("{} bytes are accepted", document.to_string().len()),
        Err(problems) => problems,
    };
    assert!(!problems.is_empty());
}
