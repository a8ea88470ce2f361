//! The speed and the memory of imports and exports of blocks, beside vmctl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TURNS;
use crate::answers::{Queried, assert_equal};
use crate::blocks::Blocks;
use crate::cpu_time::cpu_s;
use crate::harness::process_stats::status_bytes;
use crate::harness::request;
use crate::packages::latest_debian;
use crate::process::{Cost, run};
use crate::servers::{Peer, prometheus_server_with, victoria_metrics};
use crate::stores::{Store, assert_imported};
use crate::table::{Measured, print_at_least, print_at_most, print_costs};

/// The goals: million samples each second, and MB of memory.
const IMPORT_MIN: f64 = 10.0;
const EXPORT_MIN: f64 = 5.0;
const MEMORY_MAX: f64 = 300.0;

/// Copies the blocks in turns and prints the medians.
pub(crate) fn measure(blocks: &Blocks, dir: &Path) {
    let (mut stopped, mut running, mut server, mut vmctl, mut victoria, mut exported) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let out = dir.join("exported");
    for turn in 0..TURNS {
        let store = Store::new(dir);
        stopped.push(import_into(&store, &blocks.folder, blocks.samples));
        if out.exists() {
            fs::remove_dir_all(&out).expect("our folder");
        }
        exported.push(export_from(&store, &out));
        if turn == 0 {
            check(&store, &out, blocks, dir);
        }
        let (client, both) = import_into_running(blocks, dir);
        running.push(client);
        server.push(both);
        let (client, both) = vmctl_into_victoria_metrics(blocks, dir);
        vmctl.push(client);
        victoria.push(both);
    }
    let measured =
        |name, costs: &[Cost]| Measured { name, samples: blocks.samples, cost: Cost::median(costs) };
    let all = [
        measured("import into a stopped folder", &stopped),
        measured("import into a running server: the command", &running),
        measured("the same with the server", &server),
        measured("vmctl into VictoriaMetrics: the command", &vmctl),
        measured("the same with VictoriaMetrics", &victoria),
        measured("export from a stopped folder", &exported),
    ];
    print_costs(&all);
    let [stopped, running, server, _, victoria, exported] = all;
    let speed = |one: &Measured| one.samples_per_s() / 1e6;
    let cpu = |one: &Measured| victoria.cost.cpu_s / one.cost.cpu_s;
    for (name, import, command) in
        [("stopped folder", &stopped, &stopped), ("running server", &server, &running)]
    {
        print_at_least(&format!("import into a {name}, M samples/s"), speed(import), IMPORT_MIN);
        print_at_least("the same, vmctl's is 1", speed(import) / speed(&victoria), 10.0);
        print_at_least("the same per CPU second, vmctl's is 1", cpu(import), 10.0);
        print_at_most("memory of the command in MB", command.cost.peak_mb(), MEMORY_MAX);
    }
    print_at_least("export from a stopped folder, M samples/s", speed(&exported), EXPORT_MIN);
}

/// Makes blocks with the samples of `copies` copies of the given blocks, each with a label of its
/// own, and copies them once. Returns them.
pub(crate) fn measure_large(blocks: &Blocks, copies: usize, dir: &Path) -> Blocks {
    let source = Store::new(&subfolder(dir, "copies"));
    for copy in 0..copies {
        let rules = dir.join("copy.yml");
        fs::write(&rules, format!("- target_label: copy\n  replacement: c{copy}\n")).expect("written");
        let folder = blocks.folder.display().to_string();
        let rules = rules.display().to_string();
        let (_, said) = source.run(&["import", "prometheus-blocks", &folder, "--relabel", &rules]);
        assert_imported(&said, blocks.samples);
    }
    let samples = blocks.samples * copies as u64;
    let large = Blocks { folder: dir.join("large"), samples, ..*blocks };
    let exported = export_from(&source, &large.folder);
    fs::remove_dir_all(&source.folder).expect("our folder");
    let store = Store::new(&subfolder(dir, "large-store"));
    let imported = import_into(&store, &large.folder, samples);
    let running = store.serve();
    let queried = Queried::promlet(&running.server);
    for copy in 0..copies {
        queried.assert_samples("promlet", &format!("copy=\"c{copy}\""), blocks);
    }
    drop(running);
    fs::remove_dir_all(&store.folder).expect("our folder");
    let all = [
        Measured { name: "import of all copies into a stopped folder", samples, cost: imported },
        Measured { name: "export of all copies from a stopped folder", samples, cost: exported },
    ];
    print_costs(&all);
    let [imported, exported] = all;
    print_at_least("import of all copies, M samples/s", imported.samples_per_s() / 1e6, IMPORT_MIN);
    print_at_most("memory of the command in MB", imported.cost.peak_mb(), MEMORY_MAX);
    print_at_least("export of all copies, M samples/s", exported.samples_per_s() / 1e6, EXPORT_MIN);
    large
}

fn subfolder(dir: &Path, name: &str) -> PathBuf {
    let folder = dir.join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn import_into(store: &Store, blocks: &Path, samples: u64) -> Cost {
    let (cost, said) = store.run(&["import", "prometheus-blocks", &blocks.display().to_string()]);
    assert_imported(&said, samples);
    cost
}

fn export_from(store: &Store, out: &Path) -> Cost {
    store.run(&["export", "prometheus-blocks", &out.display().to_string()]).0
}

/// Asserts that promlet, and a Prometheus on the exported blocks, have each sample and give the
/// answers of a Prometheus on the blocks of promtool.
fn check(store: &Store, exported: &Path, blocks: &Blocks, dir: &Path) {
    store.run(&["verify-import", "prometheus-blocks", &blocks.folder.display().to_string()]);
    let (_their_peer, theirs) = prometheus_on(&blocks.folder, &subfolder(dir, "theirs"));
    let (_our_peer, reopened) = prometheus_on(exported, &subfolder(dir, "reopened"));
    let running = store.serve();
    let ours = Queried::promlet(&running.server);
    let servers =
        [("Prometheus", &theirs), ("promlet", &ours), ("Prometheus on the exported blocks", &reopened)];
    for (who, server) in &servers {
        server.assert_samples(who, "", blocks);
    }
    let points = assert_equal(&servers, blocks);
    println!("{points} points of promlet and of a Prometheus on the exported blocks are those of Prometheus");
}

/// Starts a Prometheus on copies of blocks, which it may merge.
fn prometheus_on(blocks: &Path, dir: &Path) -> (Peer, Queried) {
    let copied = Command::new("cp").arg("-r").arg(blocks).arg(dir.join("data")).status();
    assert!(copied.expect("cp runs").success(), "the blocks are not copied");
    let config = "global: {scrape_interval: 1h}\n";
    let (peer, url) = prometheus_server_with(dir, config, &["--storage.tsdb.retention.time=100y"]);
    (peer, Queried::peer(&url))
}

/// Imports into a new running server. Returns the cost of the command alone and with the server.
fn import_into_running(blocks: &Blocks, dir: &Path) -> (Cost, Cost) {
    let running = Store::new(&subfolder(dir, "running")).serve();
    let pid = running.server.pid();
    let before = cpu_s(pid).expect("a running process");
    let (client, said) = run(&mut running.import(&blocks.folder, dir), dir);
    assert_imported(&said, blocks.samples);
    let server_s = cpu_s(pid).expect("a running process") - before;
    let peak_bytes = client.peak_bytes + running.server.status_bytes("VmHWM");
    Queried::promlet(&running.server).assert_samples("running promlet", "", blocks);
    (client, Cost { cpu_s: client.cpu_s + server_s, peak_bytes, ..client })
}

/// Imports into a new VictoriaMetrics. Returns the cost of vmctl alone and with VictoriaMetrics.
fn vmctl_into_victoria_metrics(blocks: &Blocks, dir: &Path) -> (Cost, Cost) {
    let data = dir.join("victoria-metrics");
    let (peer, url) = victoria_metrics(&data);
    let before = cpu_s(peer.id()).expect("a running process");
    let mut vmctl = Command::new(latest_debian("victoria", &["victoria-metrics"]).join("usr/bin/vmctl"));
    vmctl
        .args(["prometheus", "-s", "--disable-progress-bar", "--prom-concurrency", "2", "--prom-snapshot"])
        .arg(&blocks.folder)
        .args(["--vm-concurrency", "2", "--vm-addr", &url])
        .arg("--prom-tmp-dir-path")
        .arg(subfolder(dir, "vmctl"));
    let (client, _) = run(&mut vmctl, dir);
    let server_s = cpu_s(peer.id()).expect("a running process") - before;
    let peak_bytes = client.peak_bytes + status_bytes(peer.id(), "VmHWM").expect("a running process");
    let flushed = request("GET", &format!("{url}/internal/force_flush"), &[], None);
    assert_eq!(flushed.status, 200, "{}", flushed.body);
    Queried::peer(&url).wait_for_samples("VictoriaMetrics", blocks);
    drop(peer);
    fs::remove_dir_all(&data).expect("our folder");
    (client, Cost { cpu_s: client.cpu_s + server_s, peak_bytes, ..client })
}
