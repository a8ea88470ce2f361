//! A sign-in provider with a certificate from a private authority (docs/specification.md E,
//! `PROMLET_OAUTH_OIDC_CA_FILE`): trusted only if the file contains the authority.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use serde_json::json;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::harness::{Server, Start};
use crate::https::fixture;

/// Serves the discovery document of an issuer over TLS with the pair `one` until this process ends,
/// and returns its URL.
fn issuer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://localhost:{}", listener.local_addr().expect("bound").port());
    let at = |path: &str| format!("{url}{path}");
    let discovery = json!({
        "issuer": url, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"), "jwks_uri": at("/jwks"),
        "response_types_supported": ["code"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    });
    let cert = CertificateDer::from_pem_file(fixture("one.crt")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(fixture("one.key")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .expect("a pair");
    let config = Arc::new(config);
    let body = discovery.to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a server");
            let mut stream = StreamOwned::new(connection, socket);
            let mut request = Vec::new();
            let mut part = [0; 1_024];
            // A client that does not trust the certificate sends an alert and hangs up.
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut part) {
                    Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
                    _ => break,
                }
            }
            if request.starts_with(b"GET /.well-known/openid-configuration ") {
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                // The client may be gone, which its own test reports.
                let _ = stream.write_all(answer.as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    url
}

#[test]
fn an_issuer_with_a_private_authority_is_trusted_only_if_the_file_contains_the_authority() {
    let issuer = issuer();
    let files = ["one.crt", "two.crt"].map(|name| fixture(name).to_str().expect("UTF-8").to_owned());
    for (file, trusted) in [(Some(&files[0]), true), (Some(&files[1]), false), (None, false)] {
        let dir = crate::harness::scratch::temporary_folder().expect("a folder");
        let mut env = vec![
            ("PROMLET_OAUTH_OIDC_ISSUER", &*issuer),
            ("PROMLET_OAUTH_OIDC_CLIENT_ID", "promlet"),
            ("PROMLET_OAUTH_OIDC_CLIENT_SECRET", "a secret"),
        ];
        env.extend(file.map(|file| ("PROMLET_OAUTH_OIDC_CA_FILE", &**file)));
        let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env });
        let answer = server.post_json("/api/v1/auth/oauth/oidc/start", &[], &json!({}));
        if trusted {
            assert_eq!(answer.status, 200, "{}\n{}", answer.body, server.log());
            let to = answer.json()["authorize_url"].as_str().expect("an address").to_owned();
            assert!(to.starts_with(&format!("{issuer}/authorize?")), "{to}");
        } else {
            assert_eq!(
                (answer.status, &*answer.code()),
                (502, "idp_unavailable"),
                "{file:?}: {}",
                answer.body
            );
            // The log has the reason.
            server.log_line("invalid peer certificate");
        }
    }
}
