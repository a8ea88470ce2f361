//! Live metrics of the machine that promlet runs on: processors, memory, disks, network, load.

use sysinfo::{Disks, Networks, System};

use crate::model::{BatchBuilder, Labels, MetricKind, Sample, Timestamp};

/// Returns the memory that the process may use, in bytes: that of the machine or of its control
/// group. Zero if neither is known.
pub fn memory_bytes() -> u64 {
    let Ok(mut system) = System::new() else { return 0 };
    system.refresh_memory();
    let of_group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    system.total_memory().min(of_group)
}

/// Returns the name of this machine; empty if it is not known.
pub fn host_name() -> String {
    System::host_name().unwrap_or_default()
}

/// The metrics of the machine, and the state from which the next reading computes differences.
///
/// Values that the operating system does not provide are omitted. This is logged once.
pub struct HostMetrics {
    system: Option<System>,
    disks: Option<Disks>,
    networks: Option<Networks>,
    host: String,
    described: bool,
}

impl Default for HostMetrics {
    fn default() -> HostMetrics {
        HostMetrics::new()
    }
}

impl HostMetrics {
    /// Reads the machine for the first time. The first reading's processor usage covers the time
    /// since then.
    pub fn new() -> HostMetrics {
        let mut system = available("processors and memory", System::new());
        if let Some(system) = &mut system {
            system.refresh_cpu_usage();
        }
        HostMetrics {
            system,
            disks: available("disks", Disks::new_with_refreshed_list()),
            networks: available("networks", Networks::new_with_refreshed_list()),
            host: System::host_name().unwrap_or_else(|_| "localhost".into()),
            described: false,
        }
    }

    /// Returns the name of the machine.
    pub fn name(&self) -> &str {
        &self.host
    }

    /// Appends one reading of all metrics at time `at`. Series have the labels `job="host"` and
    /// `instance` with the host name.
    pub fn read(&mut self, at: Timestamp, out: &mut BatchBuilder) {
        if !self.described {
            self.described = true;
            describe(out);
        }
        let host = self.host.clone();
        let mut put = |name: &str, more: &[(&str, &str)], value: f64| {
            let own = [("__name__", name), ("job", "host"), ("instance", &*host)];
            let labels = Labels::from_pairs(own.iter().chain(more).copied());
            out.series(&labels, [Sample { at, value }]);
        };
        if let Some(system) = &mut self.system {
            system.refresh_cpu_usage();
            system.refresh_memory();
            for (number, cpu) in system.cpus().iter().enumerate() {
                put("host_cpu_usage_ratio", &[("cpu", &number.to_string())], f64::from(cpu.usage()) / 100.0);
            }
            put("host_memory_total_bytes", &[], whole(system.total_memory()));
            put("host_memory_available_bytes", &[], whole(system.available_memory()));
            put("host_memory_used_bytes", &[], whole(system.used_memory()));
            put("host_swap_used_bytes", &[], whole(system.used_swap()));
        }
        if let Ok(load) = System::load_average() {
            put("host_load1", &[], load.one);
            put("host_load5", &[], load.five);
            put("host_load15", &[], load.fifteen);
        }
        if let Ok(uptime) = System::uptime() {
            put("host_uptime_seconds", &[], whole(uptime));
        }
        if let Some(disks) = &mut self.disks {
            disks.refresh(true);
            // A container can show one disk at many mount points; only the first one is reported.
            let mut seen = Vec::new();
            for disk in disks.iter() {
                let device = disk.name().to_string_lossy().into_owned();
                if seen.contains(&device) {
                    continue;
                }
                let mount_point = disk.mount_point().to_string_lossy().into_owned();
                put(
                    "host_disk_total_bytes",
                    &[("device", &device), ("mountpoint", &mount_point)],
                    whole(disk.total_space()),
                );
                put(
                    "host_disk_available_bytes",
                    &[("device", &device), ("mountpoint", &mount_point)],
                    whole(disk.available_space()),
                );
                seen.push(device);
            }
        }
        if let Some(networks) = &mut self.networks {
            networks.refresh(true);
            for (device, network) in networks.iter() {
                let device = &*device.to_string_lossy();
                put(
                    "host_network_receive_bytes_total",
                    &[("device", device)],
                    whole(network.total_received()),
                );
                put(
                    "host_network_transmit_bytes_total",
                    &[("device", device)],
                    whole(network.total_transmitted()),
                );
            }
        }
    }
}

fn available<T>(what: &str, answer: Result<T, sysinfo::Error>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::warn!(%error, "this system does not provide metrics about its {what}"))
        .ok()
}

impl std::fmt::Debug for HostMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostMetrics").field("host", &self.host).finish_non_exhaustive()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes beyond 2^53 lose their last digits, as in every Prometheus exporter"
)]
fn whole(n: u64) -> f64 {
    n as f64
}

fn describe(out: &mut BatchBuilder) {
    let of = [
        (
            "host_cpu_usage_ratio",
            MetricKind::Gauge,
            "Share of a processor's time in use since the reading before.",
            "ratio",
        ),
        ("host_load1", MetricKind::Gauge, "Load average of one minute.", ""),
        ("host_load5", MetricKind::Gauge, "Load average of five minutes.", ""),
        ("host_load15", MetricKind::Gauge, "Load average of fifteen minutes.", ""),
        ("host_uptime_seconds", MetricKind::Gauge, "Time since the machine started.", "seconds"),
        ("host_memory_total_bytes", MetricKind::Gauge, "Memory of the machine.", "bytes"),
        ("host_memory_available_bytes", MetricKind::Gauge, "Memory that programs could still get.", "bytes"),
        ("host_memory_used_bytes", MetricKind::Gauge, "Memory in use.", "bytes"),
        ("host_swap_used_bytes", MetricKind::Gauge, "Swap in use.", "bytes"),
        ("host_disk_total_bytes", MetricKind::Gauge, "Size of a disk.", "bytes"),
        ("host_disk_available_bytes", MetricKind::Gauge, "Space left on a disk.", "bytes"),
        (
            "host_network_receive_bytes_total",
            MetricKind::Counter,
            "Bytes received by a network device.",
            "bytes",
        ),
        (
            "host_network_transmit_bytes_total",
            MetricKind::Counter,
            "Bytes sent by a network device.",
            "bytes",
        ),
    ];
    for (name, kind, help, unit) in of {
        out.describe(name, kind, help, unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_holds_this_machines_memory_and_every_series_once() {
        let mut out = BatchBuilder::default();
        HostMetrics::new().read(Timestamp::from_s(1), &mut out);
        let batch = out.batch();
        let mut keys: Vec<&[u8]> = batch.series.iter().map(|s| s.raw_labels).collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
        let memory = batch
            .series
            .iter()
            .position(|s| s.raw_labels.windows(23).any(|w| w == b"host_memory_total_bytes"))
            .expect("there");
        assert!(batch.samples[memory].value > 1e6);
    }
}
