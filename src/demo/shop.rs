//! The web shop: a small simulation described by `data/demo/shop.json`, deterministic
//! for a seed.
//!
//! Each step adds one scrape of every series. Counters are whole numbers that only grow. Latencies
//! follow a log-normal distribution whose median depends on the load and on the incident, so
//! `rate`, `histogram_quantile` and ratios of them are consistent.

use serde::Deserialize;

use crate::entropy::Entropy;
use crate::model::{BatchBuilder, Labels, MetricKind, Sample, TimeRange, Timestamp};

const DESCRIPTION: &str = include_str!("../../data/demo/shop.json");

/// The content of `data/demo/shop.json`.
#[derive(Debug, Deserialize)]
pub(super) struct ShopDescription {
    pub(super) step_s: i64,
    pub(super) history_h: i64,
    instances: Vec<String>,
    latency_buckets_s: Vec<f64>,
    routes: Vec<ShopRoute>,
    payments: Vec<Payment>,
    queues: Vec<ShopQueue>,
    database_connections_max: f64,
    versions: Versions,
    incident: Incident,
}

#[derive(Debug, Clone, Deserialize)]
struct ShopRoute {
    route: String,
    method: String,
    rps: f64,
    median_ms: f64,
    spread: f64,
    errors: f64,
    missing: f64,
}

#[derive(Debug, Deserialize)]
struct Payment {
    method: String,
    share: f64,
}

#[derive(Debug, Deserialize)]
struct ShopQueue {
    queue: String,
    depth: f64,
}

#[derive(Debug, Deserialize)]
struct Versions {
    good: String,
    bad: String,
}

#[derive(Debug, Deserialize)]
struct Incident {
    begins_before_now_min: i64,
    lasts_min: i64,
    route: String,
}

/// The simulation and its counters.
pub(super) struct Shop {
    description: ShopDescription,
    rng: Entropy,
    incident: TimeRange,
    traffic: Vec<Traffic>,
    orders: Vec<(Labels, f64)>,
    revenue: (Labels, f64),
    queues: Vec<(Labels, f64)>,
}

/// The traffic of one route on one instance.
struct Traffic {
    route: ShopRoute,
    codes: [(Labels, f64); 3],
    buckets: Vec<(Labels, f64, f64)>,
    sum: (Labels, f64),
    count: (Labels, f64),
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied().chain([("job", "shop")]))
}

impl Shop {
    /// Returns a shop that has just started, with the incident placed before `now`.
    pub(super) fn new(seed: u64, now: Timestamp) -> Shop {
        let description: ShopDescription = serde_json::from_str(DESCRIPTION)
            .expect("data/demo/shop.json is part of the program and a test reads it");
        let begins = now.plus_ms(-description.incident.begins_before_now_min * 60_000);
        let incident = TimeRange::new(begins, begins.plus_ms(description.incident.lasts_min * 60_000));
        let mut traffic = Vec::new();
        for instance in &description.instances {
            for route in &description.routes {
                traffic.push(Traffic::new(&description, instance, route));
            }
        }
        let order = |p: &Payment| (labels(&[("__name__", "shop_orders_total"), ("payment", &p.method)]), 0.0);
        let depth =
            |q: &ShopQueue| (labels(&[("__name__", "shop_queue_depth"), ("queue", &q.queue)]), q.depth);
        Shop {
            rng: Entropy::seeded(seed),
            incident,
            orders: description.payments.iter().map(order).collect(),
            revenue: (labels(&[("__name__", "shop_revenue_euros_total")]), 0.0),
            queues: description.queues.iter().map(depth).collect(),
            traffic,
            description,
        }
    }

    /// Returns the description of the shop.
    pub(super) fn description(&self) -> &ShopDescription {
        &self.description
    }

    /// Adds the help texts and types of all metrics.
    pub(super) fn describe(out: &mut BatchBuilder) {
        let of = [
            (
                "shop_http_requests_total",
                MetricKind::Counter,
                "Requests served, by route and status code.",
                "",
            ),
            ("shop_http_request_duration_seconds", MetricKind::Histogram, "Duration of requests.", "seconds"),
            ("shop_orders_total", MetricKind::Counter, "Orders placed, by means of payment.", ""),
            ("shop_revenue_euros_total", MetricKind::Counter, "Turnover.", "euros"),
            ("shop_queue_depth", MetricKind::Gauge, "Jobs waiting.", ""),
            ("shop_database_connections", MetricKind::Gauge, "Connections in use.", ""),
            ("shop_database_connections_max", MetricKind::Gauge, "Connections the pool may open.", ""),
            ("shop_build_info", MetricKind::Gauge, "1 for the version that runs.", ""),
            ("shop_memory_bytes", MetricKind::Gauge, "Resident memory of an instance.", "bytes"),
        ];
        for (name, kind, help, unit) in of {
            out.describe(name, kind, help, unit);
        }
    }

    /// Adds one scrape at `at`, one step after the previous one.
    pub(super) fn step(&mut self, at: Timestamp, out: &mut BatchBuilder) {
        #[expect(clippy::cast_precision_loss, reason = "a step is seconds")]
        let step_s = self.description.step_s as f64;
        let load = daily_load(at);
        let trouble = self.trouble(at);
        let mut orders = 0.0;
        for traffic in &mut self.traffic {
            let affected = traffic.route.route == self.description.incident.route;
            #[expect(clippy::cast_precision_loss, reason = "a handful of instances")]
            let share = 1.0 / self.description.instances.len() as f64;
            let wobble = 0.85 + 0.3 * self.rng.unit();
            let requests = whole(traffic.route.rps * load * share * wobble * step_s, &mut self.rng);
            let stress = if affected { trouble } else { trouble * 0.12 };
            let failing = traffic.route.errors * (0.5 + load)
                + if affected { 0.38 * trouble * trouble } else { 0.002 * trouble };
            let failed = whole(requests * failing.min(0.9), &mut self.rng).min(requests);
            let missing = whole(requests * traffic.route.missing, &mut self.rng).min(requests - failed);
            traffic.codes[0].1 += requests - failed - missing;
            traffic.codes[1].1 += missing;
            traffic.codes[2].1 += failed;
            if affected {
                orders += requests - failed;
            }
            let median_s =
                traffic.route.median_ms / 1_000.0 * (0.9 + 0.25 * load) * (1.0 + 17.0 * stress * stress);
            traffic.answer(requests, median_s, &mut self.rng);
            traffic.emit(at, out);
        }
        self.rest(at, orders, trouble, out);
    }

    /// Returns 0 without an incident. During one, rises to 1 and then stays: connections leak
    /// slowly and come back at once.
    fn trouble(&self, at: Timestamp) -> f64 {
        if !self.incident.contains(at) {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "minutes of an incident")]
        let passed = at.ms_since(self.incident.start) as f64
            / self.incident.end.ms_since(self.incident.start).max(1) as f64;
        (passed * 2.2).min(1.0)
    }

    fn rest(&mut self, at: Timestamp, orders: f64, trouble: f64, out: &mut BatchBuilder) {
        let mut put = |labels: &Labels, value: f64| {
            out.series(labels, [Sample { at, value }]);
        };
        for (index, (labels, total)) in self.orders.iter_mut().enumerate() {
            *total += whole(orders * self.description.payments[index].share, &mut self.rng);
            put(labels, *total);
        }
        self.revenue.1 += (orders * (38.0 + 9.0 * self.rng.unit()) * 100.0).round() / 100.0;
        put(&self.revenue.0, (self.revenue.1 * 100.0).round() / 100.0);
        for (index, (labels, depth)) in self.queues.iter_mut().enumerate() {
            let rest = self.description.queues[index].depth;
            *depth = (*depth + (rest - *depth) * 0.15 + (self.rng.unit() - 0.5) * rest * 0.6 + trouble * 9.0)
                .max(0.0);
            put(labels, depth.round());
        }
        let max = self.description.database_connections_max;
        let version =
            if trouble > 0.0 { &self.description.versions.bad } else { &self.description.versions.good };
        for instance in &self.description.instances {
            let calm = 9.0 + 7.0 * daily_load(at) + 3.0 * self.rng.unit();
            let used = (calm + (max - calm) * trouble).min(max).round();
            put(&labels(&[("__name__", "shop_database_connections"), ("instance", instance)]), used);
            put(&labels(&[("__name__", "shop_database_connections_max"), ("instance", instance)]), max);
            put(
                &labels(&[("__name__", "shop_build_info"), ("instance", instance), ("version", version)]),
                1.0,
            );
            let memory = (310e6 + 90e6 * trouble + 25e6 * self.rng.unit() + 40e6 * daily_load(at)).round();
            put(&labels(&[("__name__", "shop_memory_bytes"), ("instance", instance)]), memory);
        }
    }
}

impl Traffic {
    fn new(description: &ShopDescription, instance: &str, route: &ShopRoute) -> Traffic {
        let on = [("instance", instance), ("route", &*route.route), ("method", &*route.method)];
        let with =
            |name: &str, more: &[(&str, &str)]| labels(&[&[("__name__", name)], &on[..], more].concat());
        let bucket = |bound: f64| {
            let le = if bound.is_infinite() { "+Inf".to_owned() } else { bound.to_string() };
            (with("shop_http_request_duration_seconds_bucket", &[("le", &le)]), bound, 0.0)
        };
        Traffic {
            codes: ["200", "404", "503"]
                .map(|code| (with("shop_http_requests_total", &[("code", code)]), 0.0)),
            buckets: description
                .latency_buckets_s
                .iter()
                .copied()
                .chain([f64::INFINITY])
                .map(bucket)
                .collect(),
            sum: (with("shop_http_request_duration_seconds_sum", &[]), 0.0),
            count: (with("shop_http_request_duration_seconds_count", &[]), 0.0),
            route: route.clone(),
        }
    }

    /// Distributes `requests` over the buckets of a log-normal distribution with this median.
    fn answer(&mut self, requests: f64, median_s: f64, rng: &mut Entropy) {
        let spread = self.route.spread;
        let mut below = 0.0;
        for (_, bound, total) in &mut self.buckets {
            let share = normal_share((*bound / median_s).ln() / spread);
            let upto = if bound.is_infinite() {
                requests
            } else {
                whole(requests * share, rng).clamp(below, requests)
            };
            *total += upto;
            below = upto;
        }
        self.count.1 += requests;
        // The mean of a log-normal distribution.
        self.sum.1 += requests * median_s * (spread * spread / 2.0).exp();
    }

    fn emit(&self, at: Timestamp, out: &mut BatchBuilder) {
        for (labels, value) in self.codes.iter().chain([&self.count]) {
            out.series(labels, [Sample { at, value: *value }]);
        }
        for (labels, _, value) in &self.buckets {
            out.series(labels, [Sample { at, value: *value }]);
        }
        out.series(&self.sum.0, [Sample { at, value: (self.sum.1 * 1e6).round() / 1e6 }]);
    }
}

/// Returns a whole number near `x` whose mean is `x`.
fn whole(x: f64, rng: &mut Entropy) -> f64 {
    (x + rng.unit()).floor().max(0.0)
}

/// Returns the share of a normal distribution below `x` deviations, to about 1 %, by the logistic
/// curve of the same slope.
fn normal_share(x: f64) -> f64 {
    1.0 / (1.0 + (-1.702 * x).exp())
}

/// Returns the load of the day, from 0.25 at night to 1 in the evening, with a smaller wave of 40
/// minutes so that short ranges are not flat.
fn daily_load(at: Timestamp) -> f64 {
    let turn = |period_s: f64| (at.as_seconds() / period_s * std::f64::consts::TAU).sin();
    // The maximum is around 19:00 UTC.
    let day = ((at.as_seconds() / 86_400.0 - 19.0 / 24.0) * std::f64::consts::TAU).cos();
    (0.62 + 0.32 * day + 0.07 * turn(2_400.0)).clamp(0.2, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, steps: i64) -> BatchBuilder {
        let now = Timestamp::from_s(1_795_226_400);
        let mut shop = Shop::new(seed, now);
        let mut out = BatchBuilder::default();
        for step in 0..steps {
            shop.step(now.plus_ms((step - steps) * 15_000), &mut out);
        }
        out
    }

    #[test]
    fn the_same_seed_makes_the_same_shop() {
        assert_eq!(run(1, 20).batch().samples, run(1, 20).batch().samples);
        assert_ne!(run(1, 20).batch().samples, run(2, 20).batch().samples);
    }

    #[test]
    fn buckets_are_cumulative_and_counters_never_fall() {
        let now = Timestamp::from_s(1_795_226_400);
        let mut shop = Shop::new(7, now);
        let mut last: Vec<f64> = Vec::new();
        for step in 0..500 {
            shop.step(now.plus_ms((step - 500) * 15_000), &mut BatchBuilder::default());
            let counters: Vec<f64> = shop
                .traffic
                .iter()
                .flat_map(|t| t.buckets.iter().map(|b| b.2).chain(t.codes.iter().map(|c| c.1)))
                .collect();
            assert!(last.iter().zip(&counters).all(|(before, after)| before <= after));
            last = counters;
            for traffic in &shop.traffic {
                assert!(traffic.buckets.is_sorted_by(|a, b| a.2 <= b.2), "cumulative");
                assert_eq!(traffic.buckets.last().map(|b| b.2), Some(traffic.count.1));
            }
        }
    }

    #[test]
    fn the_incident_shows_in_checkout_and_ends() {
        let now = Timestamp::from_s(1_795_226_400);
        let mut shop = Shop::new(7, now);
        let failed = |shop: &Shop| {
            shop.traffic.iter().filter(|t| t.route.route == "/checkout").map(|t| t.codes[2].1).sum::<f64>()
        };
        let mut errors_by_minute = Vec::new();
        for minute in -120..0 {
            let before = failed(&shop);
            for part in 0..4 {
                shop.step(now.plus_ms(minute * 60_000 + part * 15_000), &mut BatchBuilder::default());
            }
            errors_by_minute.push(failed(&shop) - before);
        }
        let calm: f64 = errors_by_minute[..15].iter().sum();
        let incident: f64 = errors_by_minute[35..50].iter().sum();
        let after: f64 = errors_by_minute[60..75].iter().sum();
        assert!(incident > 50.0 * (calm + 1.0) && after < 20.0, "{calm} {incident} {after}");
    }
}
