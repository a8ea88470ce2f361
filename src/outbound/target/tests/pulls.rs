//! Pulls with the settings of a job.

use super::*;

fn pull(path: &str) -> PullRequest {
    PullRequest {
        path_and_query: path.to_owned(),
        headers: vec![("accept", "text/plain".to_owned())],
        timeout: Duration::from_secs(20),
        body_bytes_max: 1 << 20,
    }
}

fn puller(server: &FakeTarget, scheme: &str, options: &PullOptions) -> PullServer {
    let client = PullClient::new(options, egress(&["127.0.0.0/8"])).expect("valid settings");
    client.server(&url(&format!("{scheme}://{}", server.address))).expect("a server")
}

async fn pulled(
    server: &FakeTarget,
    options: &PullOptions,
    path: &str,
) -> Result<(u16, String), TargetError> {
    let response = puller(server, "http", options).get(&pull(path)).await?;
    Ok((response.status, String::from_utf8(response.body).expect("UTF-8")))
}

#[tokio::test]
async fn any_certificate_is_accepted_only_if_it_is_configured() {
    let server = FakeTarget::start(Some(acceptor(None)), |_| FakeReply::Keep(answer("200 OK", "x"))).await;
    let code = async |options: PullOptions| {
        let pulled = puller(&server, "https", &options).get(&pull("/")).await;
        pulled.map(|response| response.status).map_err(|error| error.code())
    };
    assert_eq!(code(PullOptions::default()).await, Err("target_tls"));
    let any = PullOptions { accepts_any_certificate: true, ..PullOptions::default() };
    assert_eq!(code(any).await, Ok(200));
    let tls = TargetTls { ca_pem: Some(fixture("two.crt")), ..TargetTls::default() };
    assert_eq!(code(PullOptions { tls, ..PullOptions::default() }).await, Err("target_tls"));
    let tls = TargetTls { ca_pem: Some("no certificate".to_owned()), ..TargetTls::default() };
    let wrong = PullClient::new(&PullOptions { tls, ..PullOptions::default() }, egress(&[]));
    assert!(wrong.is_err_and(|error| error.starts_with("tls: ")));
}

#[tokio::test]
async fn credentials_and_headers_of_the_job_are_sent() {
    let server = FakeTarget::plain(|request| FakeReply::Keep(answer("200 OK", request))).await;
    let seen = async |auth: PullAuth| {
        let headers = vec![("x-team".to_owned(), TargetSecret::new("a"))];
        let options = PullOptions { auth, headers, ..PullOptions::default() };
        pulled(&server, &options, "/m?a=b").await.expect("answered").1
    };
    let basic = PullAuth::Basic { username: "u".to_owned(), password: TargetSecret::new("p:w") };
    let request = seen(basic).await;
    let expected = format!("authorization: Basic {}\r\n", BASE64.encode(b"u:p:w"));
    let host = format!("host: {}\r\n", server.address);
    for line in ["GET /m?a=b HTTP/1.1\r\n", &expected, &host, "x-team: a\r\n", "accept: text/plain\r\n"] {
        assert!(request.contains(line), "{line} in {request}");
    }
    let other =
        PullAuth::Authorization { scheme: "ApiKey".to_owned(), credentials: TargetSecret::new("secret") };
    assert!(seen(other).await.contains("authorization: ApiKey secret\r\n"));
    assert!(!seen(PullAuth::None).await.contains("authorization"));
}

#[tokio::test]
async fn redirects_never_leave_the_server() {
    let server = FakeTarget::plain(|request| {
        let to = |location: &str| {
            FakeReply::Keep(
                format!("HTTP/1.1 307 x\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").into_bytes(),
            )
        };
        let host = request.split("host: ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
        match request.split(' ').nth(1).unwrap_or_default() {
            "/relative" => to("deep?x=1"),
            "/absolute" => to(&format!("http://{host}/deep")),
            "/scheme" => to(&format!("https://{host}/deep")),
            "/port" => to("http://127.0.0.1:1/deep"),
            "/name" => to("//localhost/deep"),
            "/none" => FakeReply::Keep(answer("302 Found", "")),
            path => FakeReply::Keep(answer("200 OK", path)),
        }
    })
    .await;
    let follow = PullOptions { follow_redirects: true, ..PullOptions::default() };
    for (path, expected) in [("/relative", "/deep?x=1"), ("/absolute", "/deep")] {
        assert_eq!(pulled(&server, &follow, path).await, Ok((200, expected.to_owned())), "{path}");
    }
    for path in ["/scheme", "/port", "/name", "/none"] {
        let error = pulled(&server, &follow, path).await.expect_err("refused");
        assert_eq!(error.code(), "target_invalid_response", "{path}: {error}");
    }
    let error = pulled(&server, &PullOptions::default(), "/relative").await.expect_err("refused");
    assert!(error.to_string().contains("redirects are not followed"), "{error}");
}

#[tokio::test]
async fn addresses_of_redirected_and_direct_requests_follow_the_rule() {
    let server = FakeTarget::plain(|_| FakeReply::Keep(answer("200 OK", "x"))).await;
    let client = PullClient::new(&PullOptions::default(), egress(&[])).expect("valid settings");
    let mut server = client.server(&url(&format!("http://{}", server.address))).expect("a server");
    let error = server.get(&pull("/")).await.expect_err("refused");
    assert_eq!(error.code(), "target_address_refused");
}
