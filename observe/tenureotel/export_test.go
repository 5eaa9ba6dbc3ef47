package tenureotel

var Follow = (*Telemetry).follow
