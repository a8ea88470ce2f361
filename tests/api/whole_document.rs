//! Every response in the OpenAPI document occurs. The test must be the last one by the name of its
//! module, as `met.rs` explains.

use crate::test_server::{TestServer, Who, met};

/// Responses that require a race, or four thousand million organisations.
const EXEMPTIONS: met::Exemptions = &[
    (
        "POST /api/v1/auth/oauth/{provider}/callback",
        "session_invalid",
        "the session ended during the request to the provider",
        "a_session_that_ended_meanwhile_links_nothing",
    ),
    (
        "POST /api/v1/auth/signup/complete",
        "conflict",
        "no organisation number is free",
        "without_a_free_number_no_organisation_is_created",
    ),
    (
        "POST /api/v1/orgs",
        "conflict",
        "no organisation number is free",
        "without_a_free_number_no_organisation_is_created",
    ),
];

#[tokio::test]
async fn every_documented_response_is_given_by_its_route() {
    let server = TestServer::new();
    let document = server.get("/api/v1/openapi.json", &Who::Nobody).await.value();
    let documented = met::documented(&document);
    let met = met::of_all_tests("every_documented_response_is_given_by_its_route", |met| {
        met::missing(&documented, met, EXEMPTIONS).is_empty()
    });
    let missing = met::missing(&documented, &met, EXEMPTIONS);
    assert!(missing.is_empty(), "{} of {}:\n{}", missing.len(), documented.len(), missing.join("\n"));
}
