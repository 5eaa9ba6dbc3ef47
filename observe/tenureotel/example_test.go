package tenureotel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/observe/tenureotel"
)

// A commit's span is a child of the application's span, and leases are counted. This example's
// exporters keep spans and metrics in memory.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	tracing := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	telemetry, err := tenureotel.New(&tenureotel.Options{TracerProvider: tracing, MeterProvider: metrics})
	if err != nil {
		log.Fatal(err)
	}
	backend, err := memory.Open(ctx, memory.New(), "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	err = core.RunSingleton(ctx, backend, "invoices", func(ctx context.Context, lease *core.Lease) error {
		ctx, span := tracing.Tracer("shop").Start(ctx, "pay")
		defer span.End()
		_, err := lease.Append(ctx, []byte("paid"))
		return err
	}, &core.Options{Hooks: telemetry.Hooks()})
	if err != nil {
		log.Fatal(err)
	}
	for _, span := range spans.Ended() {
		fmt.Println("span:", span.Name())
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		log.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == "tenure.leases.granted" {
			fmt.Println(m.Name, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
		}
	}
	// Output:
	// span: tenure commit
	// span: pay
	// tenure.leases.granted 1
}
