//! Embed tokens.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::harness::{ORG, Server};

/// Mints a token of the bootstrap organisation that is valid for an hour, with the secret of an API
/// key. Retries if the key has minted too many within the last second.
pub(crate) fn embed_token(server: &Server, secret: &str, restrictions: &Json) -> String {
    let bearer = format!("Bearer {secret}");
    let path = format!("/api/v1/orgs/{ORG}/embed/tokens");
    loop {
        let answer = server.post_json(
            &path,
            &[("Authorization", &*bearer)],
            &json!({ "ttl_s": 3_600, "ms": restrictions }),
        );
        match answer.status {
            201 => return answer.json()["token"].as_str().expect("a token").to_owned(),
            429 => std::thread::sleep(Duration::from_millis(50)),
            _ => panic!("{} {}", answer.status, answer.body),
        }
    }
}
