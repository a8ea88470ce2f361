// Pushes a group with the client library of Prometheus for Go, whose bodies are protobuf messages.
//
//	push URL KEY
//
// URL names no organisation; the key does.
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	url, key := os.Args[1], os.Args[2]
	files := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sync_files_total", Help: "Files \\ so far."}, []string{"disk"})
	files.WithLabelValues("home \"a\"").Add(7)
	size := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sync_bytes", Help: "Bytes."})
	size.Set(1.25e9)
	duration := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sync_seconds", Buckets: []float64{1, 2.5, 1e6}})
	quantiles := prometheus.NewSummary(prometheus.SummaryOpts{Name: "sync_wait", Objectives: map[float64]float64{0.5: 0.05, 1: 0}})
	for _, seconds := range []float64{0.5, 2, 50, 2e6} {
		duration.Observe(seconds)
		quantiles.Observe(seconds)
	}
	pusher := func(job string) *push.Pusher {
		return push.New(url, job).BasicAuth("any", key)
	}
	nightly := pusher("sync/nightly").Grouping("instance", "a/b")
	check(nightly.Collector(files).Collector(size).Collector(duration).Collector(quantiles).Push())
	more := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sync_errors"})
	check(pusher("sync/nightly").Grouping("instance", "a/b").Collector(more).Add())
	check(pusher("brief").Collector(more).Push())
	check(pusher("brief").Delete())
	native := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sync_native", NativeHistogramBucketFactor: 1.1})
	native.Observe(1)
	fmt.Println(pusher("native").Collector(native).Push())
}
