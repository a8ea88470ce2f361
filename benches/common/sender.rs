//! Senders of remote write requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use promlet::clock::Stopwatch;

use crate::harness::{ORG, Server};

/// The longest time of a request.
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// Where requests go.
pub(crate) struct Destination {
    /// The URL of the write endpoint.
    pub(crate) url: String,
    /// The credential; empty without one.
    pub(crate) authorization: String,
}

impl Destination {
    /// Returns the endpoint of the bootstrap organisation, with the secret of an API key.
    pub(crate) fn promlet(server: &Server, secret: &str) -> Destination {
        Destination {
            url: format!("{}/api/v1/orgs/{ORG}/write", server.url),
            authorization: format!("Bearer {secret}"),
        }
    }

    /// Returns the endpoint of another program, which needs no credential.
    pub(crate) fn peer(url: &str) -> Destination {
        Destination { url: format!("{url}/api/v1/write"), authorization: String::new() }
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    config.timeout_global(Some(REQUEST_MAX)).build().into()
}

/// Sends each body once, with `senders` connections. Returns the elapsed seconds. The senders take
/// turns, so a body can overtake its predecessor by a few places.
pub(crate) fn send(to: &Destination, bodies: &[Vec<u8>], senders: usize) -> f64 {
    let next = AtomicUsize::new(0);
    let watch = Stopwatch::start();
    std::thread::scope(|scope| {
        for _ in 0..senders {
            scope.spawn(|| {
                let agent = agent();
                while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut request = agent
                        .post(&to.url)
                        .header("Content-Type", "application/x-protobuf")
                        .header("Content-Encoding", "snappy")
                        .header("X-Prometheus-Remote-Write-Version", "0.1.0");
                    if !to.authorization.is_empty() {
                        request = request.header("Authorization", &to.authorization);
                    }
                    let mut response = request.send(body.as_slice()).expect("a response");
                    let status = response.status().as_u16();
                    let text = response.body_mut().read_to_string().unwrap_or_default();
                    assert!(matches!(status, 200 | 204), "{}: {status}: {text}", to.url);
                }
            });
        }
    });
    watch.elapsed().as_secs_f64()
}
