//! Expressions that random generation hardly ever writes: common ones of dashboards, and corner
//! cases of the grammar.

use promlet::promql::syntax::tree::ValueType;

use super::{Grammar, Node};

/// Unusual spellings of common expressions, and small expressions that are easily evaluated wrong.
const SPELLED: &[&str] = &[
    "SUM BY (job) (requests_total)",
    "Avg(inflight) WITHOUT (instance)",
    "sum by (job,) (requests_total)",
    "requests_total{job=\"api\",}",
    "requests_total{} # all of them",
    "inflight\n  # how many\n  + 1",
    "requests_total OFFSET 1m",
    "inflight AND ON (job) errors_total",
    "requests_total * IGNORING (code) GROUP_LEFT inflight",
    "requests_total * ignoring(code)group_left()inflight",
    "{__name__=\"inflight\", \"job\"=\"api\"}",
    "{\"inflight\", job='api'}",
    "{__name__=~\"inf.+\", __name__!=\"x\"}",
    "count({__name__!=\"\", job=\"api\"})",
    "count by (__name__) ({job=~\".+\"})",
    "inflight{job=~\"(?i)API\"}",
    "inflight{instance=~\"[a-b]:\\\\d\"}",
    "inflight{instance=~`[a-b]:\\d`}",
    "inflight{instance!~\"a.*|\"}",
    "inflight{nope=~\"|x\"}",
    "inflight{nope!=\"\"}",
    "absent(inflight{job=\"none\", instance=~\"a.*\"})",
    "absent(inflight{job=\"none\", job=\"more\"})",
    "absent_over_time(nothing{a=\"b\", c!=\"d\"}[5m])",
    "absent(sum(nothing{a=\"b\"}))",
    "inflight + 0x1F + 017 + 1_0 + .5 + 5.",
    "inflight > bool 1m30s",
    "inflight * Inf",
    "inflight * inf - nan",
    "-inflight ^ 2",
    "2 ^ 3 ^ 2 + inflight * 0",
    "inflight == inflight != bool 3",
    "1 < bool inflight",
    "count_values(\"job\", inflight)",
    "count_values by (job) (\"a.b\", inflight)",
    "count_values without (instance) (\"n\", level / 3)",
    "topk(scalar(count(level)), temperature)",
    "bottomk by (floor) (1, temperature)",
    "quantile(scalar(level{room=\"hall\"}), temperature)",
    "quantile without (room) (0.25, temperature)",
    "limitk by (job) (1, requests_total)",
    "limitk(2, inflight)",
    "limitk(-1, inflight)",
    "label_replace(inflight, \"ключ\", \"$1\", \"instance\", \"(.):.*\")",
    "label_replace(inflight, \"__name__\", \"re_$1\", \"instance\", \"(.):.*\")",
    "label_replace(inflight, \"host\", \"${h}-$$-$2x\", \"instance\", \"(?P<h>.):(\\\\d)\")",
    "label_join(inflight, \"both\", \"/\", \"job\", \"nope\", \"instance\")",
    "label_join(inflight, \"job\", \"\", \"nope\")",
    "label_join(inflight, \"new\", \"-\")",
    "timestamp(inflight)",
    "timestamp(inflight offset 37s)",
    "timestamp((inflight))",
    "timestamp(-inflight)",
    "time() - timestamp(gappy)",
    "vector(time())",
    "vector(1) or inflight",
    "inflight or vector(0)",
    "hour()",
    "day_of_year(vector(0))",
    "days_in_month()",
    "minute(timestamp(gappy))",
    "scalar(inflight{instance=\"a:1\"}) + inflight",
    "round(temperature, 0.1)",
    "round(temperature, 0)",
    "round(temperature, -3)",
    "clamp(temperature, 20, 18)",
    "clamp(level, NaN, 2)",
    "clamp_min(odd, 0)",
    "clamp_max(odd, 0)",
    "sgn(odd)",
    "abs(odd)",
    "ceil(odd)",
    "floor(odd)",
    "sqrt(odd)",
    "exp(level)",
    "ln(odd)",
    "log2(odd)",
    "deg(odd)",
    "rad(odd)",
    "pi() * level",
    "level % 0",
    "odd % 2",
    "odd / 0",
    "level atan2 odd",
    "odd == odd",
    "odd != bool odd",
    "odd > level",
    "level and odd > 0",
    "(level > 1) or odd",
    "temperature unless on (floor) level{room=\"lab\"}",
    "temperature or on () level",
    "temperature and on () vector(1)",
    "requests_total and ignoring (code) errors_total",
    "requests_total unless ignoring (code, job) inflight",
    "inflight or ignoring (job) errors_total",
    "sum(requests_total) by (job) / on (job) group_right () inflight",
    "errors_total / ignoring (code) group_left (zone) target_info",
    "requests_total * on (instance, job) group_left (version, nope) target_info",
    "group by (version) (target_info) * on () group_right () target_info",
    "info(requests_total)",
    "info(inflight, {zone=\"none\"})",
    "info(inflight, {version!=\"\"})",
    "info(inflight, {nope=\"x\"})",
    "info(sum by (job) (inflight))",
    "info(inflight, {zone=~\"z.*\"})",
    "info(rate(errors_total[5m]), {version=~\".+\", zone=\"z-1\"})",
    "sum by (\"a.b\") ({\"my.metric\"})",
    "{\"my.metric\"} * on (\"ключ\") group_left () {\"my.metric\", \"a.b\"=\"ä\"}",
    "count without (\"a.b\") ({\"my.metric\", \"ключ\"=~\".\"})",
    "rate(requests_total[5m:30s] offset 1m)",
    "max_over_time(rate(requests_total[1m])[10m:] @ end())",
    "avg_over_time((inflight > 1)[5m:15s])",
    "sum_over_time(inflight[300])",
    "inflight offset 60",
    "last_over_time(inflight[1h] offset -30m)",
    "sum_over_time(vector(1)[5m:7s])",
    "quantile_over_time(scalar(open{room=\"hall\"}), temperature[5m])",
    "predict_linear(temperature[5m] offset 1m, 60)",
    "deriv(level[3m])",
    "irate(gappy[2m])",
    "idelta(level[2m])",
    "changes(odd[10m])",
    "resets(odd[10m])",
    "stddev_over_time(odd[5m])",
    "stdvar_over_time(level[5m])",
    "double_exponential_smoothing(temperature[10m], 0.3, 0.7)",
    "mad_over_time(temperature[5m])",
    "ts_of_max_over_time(level[5m])",
    "ts_of_min_over_time(level[5m])",
    "ts_of_last_over_time(gappy[5m])",
    "present_over_time(sparse[5m])",
    "rate(level[5m])",
    "increase(churn_total[10m])",
    "delta(temperature[10m])",
];

impl Grammar<'_> {
    /// Returns a common query over histograms, classic or native.
    pub(super) fn of_histograms(&mut self) -> Node {
        let q =
            *self.chance.pick(&["0.5", "0.9", "0.99", "0", "1", "0.05", "NaN", "-1", "1.1", "scalar(level)"]);
        let range = *self.chance.pick(&["1m", "5m", "10m", "1h"]);
        let by = *self.chance.pick(&["by (le)", "by (job, le)", "without (job)", "without ()", "by (job)"]);
        let classic = "latency_seconds_bucket";
        let native = *self.chance.pick(&["size_bytes", "size_float", "wait_seconds", "depth", "mixed"]);
        let time_modifiers = self.time_modifiers();
        let text = match self.chance.below(9) {
            0 => format!("histogram_quantile({q}, sum {by} (rate({classic}[{range}]{time_modifiers})))"),
            1 => format!("histogram_quantile({q}, {classic}{{job!=\"odd\"}}{time_modifiers})"),
            2 => {
                format!(
                    "histogram_quantile({q}, sum by (job) (last_over_time({native}[{range}]{time_modifiers})))"
                )
            }
            3 => format!("histogram_fraction(0, {q}, {native}{time_modifiers})"),
            4 => {
                format!("histogram_fraction(0.1, 2, sum {by} (increase({classic}[{range}]{time_modifiers})))")
            }
            5 => format!("histogram_quantile({q}, {{__name__=~\"{classic}|{native}\"}})"),
            6 => {
                let statistic = *self.chance.pick(&["count", "sum", "avg", "stddev", "stdvar"]);
                format!("histogram_{statistic}(sum by (job) ({native}{time_modifiers}))")
            }
            // In 3.5, an operator after a computed offset belongs to the offset.
            7 => format!("(({native}{time_modifiers}) / 2 + {native}) * -1"),
            _ => format!("latency_seconds_sum / (latency_seconds_count{time_modifiers})"),
        };
        Node::leaf(ValueType::Vector, text)
    }

    /// Returns operators without parentheses, to test precedence.
    pub(super) fn unparenthesised(&mut self) -> Node {
        let mut text = String::new();
        let count = self.chance.between(2, 5);
        let mut sets = false;
        for i in 0..count {
            if i > 0 {
                let op = *self.chance.pick(&[
                    "+", "-", "*", "/", "%", "^", "== bool", "> bool", "!= bool", "<", "and", "or", "unless",
                    "-", "*", "^",
                ]);
                sets |= matches!(op, "and" | "or" | "unless" | "<");
                text += &format!(" {op} ");
            }
            if self.chance.percent(25) {
                text += *self.chance.pick(&["-", "+", "- -", "-+"]);
            }
            let is_number = i > 0 && self.chance.percent(25) && !sets;
            text +=
                if is_number { "2" } else { *self.chance.pick(&["level", "open", "level", "temperature"]) };
        }
        Node::leaf(ValueType::Vector, text)
    }

    /// Returns an unusual spelling.
    pub(super) fn spelling(&mut self) -> Node {
        Node::leaf(ValueType::Vector, *self.chance.pick(SPELLED))
    }

    /// Returns a range, sometimes a computed one.
    pub(super) fn range(&mut self) -> String {
        if self.chance.percent(85) {
            return (*self.chance.pick(&super::RANGES)).to_owned();
        }
        let computed = [
            "1m + 30s",
            "5m - 1m",
            "2 * 1m",
            "10m / 4",
            "1m * 2 + 15s",
            "(1m + 1m) * 2",
            "7m % 4m",
            "2 ^ 6",
            "300",
            "90.5",
            "-(-2m)",
            "1m30s * 1.5",
            "1h / 7",
        ];
        (*self.chance.pick(&computed)).to_owned()
    }

    /// Returns an offset, sometimes a computed one.
    pub(super) fn offset(&mut self) -> String {
        let plain: &[&str] = &["1m", "-2m", "37s", "5m", "300", "-15s", "1h"];
        let computed: &[&str] =
            &["(1m + 15s)", "-(30s * 2)", "(5m / 4)", "(10m % 3m)", "(2 ^ 5)", "(1m - 2m)", "0.5", "0s"];
        let offsets = if self.chance.percent(80) { plain } else { computed };
        (*self.chance.pick(offsets)).to_owned()
    }

    /// Returns names of labels by which to sort.
    pub(super) fn sorted_by(&mut self) -> String {
        (0..self.chance.between(1, 3)).map(|_| format!(", {:?}", self.label())).collect()
    }
}
