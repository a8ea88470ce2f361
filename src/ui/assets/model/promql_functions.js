// Functions and aggregations of PromQL with their arguments and a line of help, for completion.

/**
 * @typedef {{name: string, args: string, help: string, aggregation: boolean, experimental: boolean}} PromqlFunction
 * `args` includes the brackets; an experimental function needs a feature switch of the server
 */

/*
 * One a line: name(arguments) and the help. v is an instant vector, v[d] a range vector, s a
 * scalar; ? marks an argument that may be left out, ~ an experimental function. A test compares
 * the names with those of the evaluator.
 */
const FUNCTION_LINES = `
abs(v) Absolute value
absent(v) 1 if the selector finds nothing: for alerts on missing series
absent_over_time(v[d]) 1 if the range has no sample at all
acos(v) Arc cosine, in radians
acosh(v) Inverse hyperbolic cosine
asin(v) Arc sine, in radians
asinh(v) Inverse hyperbolic sine
atan(v) Arc tangent, in radians
atanh(v) Inverse hyperbolic tangent
avg_over_time(v[d]) Mean of the samples in the range
ceil(v) Next higher whole number
changes(v[d]) How often the value changed in the range
clamp(v, min, max) Values limited to min and max
clamp_max(v, max) Values limited to at most max
clamp_min(v, min) Values raised to at least min
cos(v) Cosine of an angle in radians
cosh(v) Hyperbolic cosine
count_over_time(v[d]) Number of samples in the range
day_of_month(v?) Day of the month in UTC, 1 to 31, of unix times
day_of_week(v?) Day of the week in UTC, 0 is Sunday
day_of_year(v?) Day of the year in UTC, 1 to 366
days_in_month(v?) Number of days of the month, 28 to 31
deg(v) Radians as degrees
delta(v[d]) Difference between the end and the start of the range, for gauges
deriv(v[d]) Slope per second by linear regression, for gauges
double_exponential_smoothing~(v[d], level, trend) Smoothed value that follows the trend; both factors from 0 to 1
end~() End of the query's range, as unix time
exp(v) e to the power of each value
first_over_time(v[d]) Oldest sample in the range
floor(v) Next lower whole number
histogram_avg(v) Mean of the observations of native histograms
histogram_count(v) Number of observations of native histograms
histogram_fraction(lower, upper, v) Share of observations between two bounds
histogram_quantile(q, v) Quantile of a histogram: sum its buckets by (le) first; q from 0 to 1
histogram_quantiles~(v, label, q, q?, …) Several quantiles of a histogram, each named by the label
histogram_stddev(v) Standard deviation of the observations of native histograms
histogram_stdvar(v) Variance of the observations of native histograms
histogram_sum(v) Sum of the observations of native histograms
hour(v?) Hour of the day in UTC, 0 to 23
idelta(v[d]) Difference between the last two samples, for gauges
increase(v[d]) How much a counter grew in the range
info~(v, selector?) Adds the labels of matching info metrics
irate(v[d]) Growth of a counter per second between its last two samples
label_join(v, target, separator, label, …) Joins values of labels into the label target
label_replace(v, target, replacement, label, regex) Sets the label target from a label that matches the regex
last_over_time(v[d]) Newest sample in the range
ln(v) Natural logarithm
log10(v) Decimal logarithm
log2(v) Binary logarithm
mad_over_time~(v[d]) Median distance of the samples from their median
max_of~(s, s) Greater one of two scalars
max_over_time(v[d]) Highest sample in the range
min_of~(s, s) Lesser one of two scalars
min_over_time(v[d]) Lowest sample in the range
minute(v?) Minute of the hour in UTC, 0 to 59
month(v?) Month of the year in UTC, 1 to 12
pi() The number π
predict_linear(v[d], seconds) Value that far in the future, by linear regression
present_over_time(v[d]) 1 for each series with a sample in the range
quantile_over_time(q, v[d]) Quantile of the samples in the range; q from 0 to 1
rad(v) Degrees as radians
range~() Length of the query's range in seconds
rate(v[d]) Growth of a counter per second, averaged over the range
resets(v[d]) How often a counter started again in the range
round(v, nearest?) Nearest whole number, or nearest multiple
scalar(v) The value of a vector's only series as a scalar
sgn(v) Sign: 1, 0 or -1
sin(v) Sine of an angle in radians
sinh(v) Hyperbolic sine
sort(v) Lowest value first, in tables
sort_by_label~(v, label, …) Sorted by values of labels, in tables
sort_by_label_desc~(v, label, …) Sorted by values of labels, the last first
sort_desc(v) Highest value first, in tables
sqrt(v) Square root
start~() Start of the query's range, as unix time
start_timestamp~(v) When the counter behind each sample started, as unix time
stddev_over_time(v[d]) Standard deviation of the samples in the range
stdvar_over_time(v[d]) Variance of the samples in the range
step~() Seconds between two steps of the query
sum_over_time(v[d]) Sum of the samples in the range
tan(v) Tangent of an angle in radians
tanh(v) Hyperbolic tangent
time() Time of the evaluation, as unix time
timestamp(v) Time of each sample, as unix time
ts_of_first_over_time~(v[d]) Time of the oldest sample in the range
ts_of_last_over_time~(v[d]) Time of the newest sample in the range
ts_of_max_over_time~(v[d]) Time of the highest sample in the range
ts_of_min_over_time~(v[d]) Time of the lowest sample in the range
vector(s) A scalar as a vector of one series without labels
year(v?) Year in UTC
`;

const AGGREGATION_LINES = `
avg(v) Mean over the series of each group
bottomk(k, v) The k series with the lowest values
count(v) Number of series of each group
count_values(label, v) How many series have each value; the label names the value
group(v) 1 for each group
limit_ratio~(ratio, v) A share of the series: 0.1 is every tenth
limitk~(k, v) Any k series of each group
max(v) Highest value of each group
min(v) Lowest value of each group
quantile(q, v) Quantile over the series of each group; q from 0 to 1
stddev(v) Standard deviation over the series of each group
stdvar(v) Variance over the series of each group
sum(v) Sum over the series of each group
topk(k, v) The k series with the highest values
`;

/** @param {string} lines @param {boolean} aggregation @returns {PromqlFunction[]} */
const parsed = (lines, aggregation) =>
  lines
    .trim()
    .split('\n')
    .map((line) => {
      const [, name = '', args = '', help = ''] = /^(\w+)~?(\([^)]*\)) (.+)$/.exec(line) ?? [];
      return { name, args, help, aggregation, experimental: line.startsWith(`${name}~`) };
    });

/** Functions and aggregations in alphabetical order. */
export const FUNCTIONS = [...parsed(FUNCTION_LINES, false), ...parsed(AGGREGATION_LINES, true)].sort((a, b) =>
  a.name < b.name ? -1 : 1,
);

/**
 * Keywords with a line of help.
 * @type {[string, string][]}
 */
export const KEYWORD_HELP = [
  ['by', 'Groups that have these labels'],
  ['without', 'Groups by all labels but these'],
  ['on', 'Matches series by these labels'],
  ['ignoring', 'Matches series by all labels but these'],
  ['group_left', 'Many series on the left match one on the right'],
  ['group_right', 'Many series on the right match one on the left'],
  ['offset', 'The value some time ago: offset 1d'],
  ['bool', '0 or 1 instead of dropping series'],
  ['and', 'Series that both sides have'],
  ['or', 'Series of the left side, and more of the right'],
  ['unless', 'Series that the right side does not have'],
  ['anchored', 'A range that starts with the value before it (experimental)'],
  ['smoothed', 'A range with interpolated ends (experimental)'],
];

/**
 * Common shapes; the caret is placed at `‸`.
 * @type {{name: string, insert: string, help: string}[]}
 */
export const SNIPPETS = [
  { name: 'sum by (…) (rate(…[5m]))', insert: 'sum by () (rate(‸[5m]))', help: 'Rate of a counter, by label' },
  {
    name: 'histogram_quantile(0.95, …)',
    insert: 'histogram_quantile(0.95, sum by (le) (rate(‸[5m])))',
    help: '95 % of observations are below it',
  },
  { name: 'topk(5, …)', insert: 'topk(5, ‸)', help: 'The five highest series' },
  { name: 'increase(…[1h])', insert: 'increase(‸[1h])', help: 'Growth of a counter in an hour' },
];
