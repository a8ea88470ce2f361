//! The cost of forwarding, beside vmagent.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::harness::{ORG, Server, Start, bootstrap, process_stats};
use crate::median::median;
use crate::packages::latest_debian;
use crate::receiver::Receiver;
use crate::sender::{Destination, send};
use crate::servers::{free_port, started};
use crate::{Bodies, TURNS, cpu_time};

/// The time after the last request in which work in the background counts, too.
const SETTLE: Duration = Duration::from_secs(5);

/// CPU time in seconds and peak memory in MiB of each turn.
#[derive(Default)]
struct Cost {
    cpu_s: Vec<f64>,
    peak_mib: Vec<f64>,
}

impl Cost {
    fn add(&mut self, pid: u32, cpu_s_before: f64) {
        self.cpu_s.push(cpu_s(pid) - cpu_s_before);
        let peak = process_stats::status_bytes(pid, "VmHWM").expect("a running process");
        self.peak_mib.push(peak as f64 / f64::from(1 << 20));
    }
}

fn cpu_s(pid: u32) -> f64 {
    cpu_time::cpu_s(pid).expect("a running process")
}

/// Stores all samples in a new promlet, which forwards them if there is a receiver.
fn promlet(bodies: &Bodies, receiver: Option<&Receiver>, cost: &mut Cost) {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["serve", "--outbound-allow", "127.0.0.1"];
    let server = Server::start(&Start { args: &args, dir: folder.path(), env: &bootstrap() });
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    if let Some(receiver) = receiver {
        let body = json!({ "name": "receiver", "target": { "url": receiver.url }, "protocol": "rw1" });
        let path = format!("/api/v1/orgs/{ORG}/forward");
        let answer = server.post_json(&path, &[("Cookie", &*cookie)], &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    let before = cpu_s(server.pid());
    send(&Destination::promlet(&server, &secret), &bodies.all, 1);
    if let Some(receiver) = receiver {
        receiver.wait_quiet();
        let state = server.get(&format!("/api/v1/orgs/{ORG}/forward/1"), &[("Cookie", &*cookie)]);
        let status = &state.json()["status"];
        assert_eq!(status["lag_samples"], 0, "{}\n{}", state.body, server.log());
        println!("passed on as received: {} of {} requests", status["passed_requests"], status["requests"]);
    } else {
        std::thread::sleep(SETTLE);
    }
    cost.add(server.pid(), before);
}

/// Sends all samples to a new vmagent, which forwards them.
fn vmagent(bodies: &Bodies, receiver: &Receiver, cost: &mut Cost) {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let programs = latest_debian("victoria", &["victoria-metrics"]);
    let mut command = Command::new(programs.join("usr/bin/vmagent"));
    command
        .arg(format!("-remoteWrite.tmpDataPath={}", folder.path().display()))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .arg(format!("-remoteWrite.url={}", receiver.url))
        // The same compression as promlet's, and no probe of the receiver.
        .arg("-remoteWrite.forcePromProto");
    let (peer, url) = started(&mut command, port);
    let before = cpu_s(peer.id());
    send(&Destination::peer(&url), &bodies.all, 1);
    receiver.wait_quiet();
    cost.add(peer.id(), before);
}

pub(crate) fn measure(bodies: &Bodies) {
    let receiver = Receiver::start();
    let [mut alone, mut forwarding, mut agent] = [(); 3].map(|()| Cost::default());
    let mut sent = [0; 2];
    for _ in 0..TURNS {
        promlet(bodies, None, &mut alone);
        let before = receiver.bytes();
        promlet(bodies, Some(&receiver), &mut forwarding);
        let between = receiver.bytes();
        vmagent(bodies, &receiver, &mut agent);
        sent = [between - before, receiver.bytes() - between];
    }
    println!("\nforward                     CPU s   peak MiB   bytes sent per sample");
    let samples = bodies.samples as f64;
    let rows = [("promlet alone", &alone, 0), ("promlet forwards", &forwarding, sent[0])];
    for (name, cost, bytes) in rows.into_iter().chain([("vmagent", &agent, sent[1])]) {
        let (cpu, peak) = (median(&cost.cpu_s), median(&cost.peak_mib));
        println!("{name:<22} {cpu:>10.2} {peak:>10.0} {:>23.1}", bytes as f64 / samples);
    }
    let [alone_s, both_s, agent_s] = [&alone, &forwarding, &agent].map(|cost| median(&cost.cpu_s));
    let [alone_mib, both_mib, agent_mib] = [&alone, &forwarding, &agent].map(|cost| median(&cost.peak_mib));
    println!("forwarding / storing, CPU time: {:.2} (goal 0.15)", (both_s - alone_s) / alone_s);
    println!("forwarding / vmagent, CPU time: {:.2} (goal 0.5)", (both_s - alone_s) / agent_s);
    println!("forwarding / vmagent, additional memory: {:.2} (goal 0.3)", (both_mib - alone_mib) / agent_mib);
}
